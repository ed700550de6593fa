"""The RPCs of operators: many jobs at once, and the whole at a glance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server import tuning
from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.ids import parse_job_id
from pulse_server.domain.overview import TopicDepth, TopicLatencies, TopicRates
from pulse_server.service.dead_letters import DeadLetters
from pulse_server.service.gate import Gate
from pulse_server.service.jobs import Jobs
from pulse_server.service.selections import Selections
from pulse_server.service.servers import Servers
from pulse_server.service.topics import Topics
from pulse_server.service.transitions import Transitions
from pulse_server.transport.grpc import convert, convert_overview


class Overseer:
    def __init__(
        self,
        jobs: Jobs,
        selections: Selections,
        topics: Topics,
        dead_letters: DeadLetters,
        servers: Servers,
        transitions: Transitions,
        gate: Gate,
    ) -> None:
        self._jobs = jobs
        self._selections = selections
        self._topics = topics
        self._dead_letters = dead_letters
        self._servers = servers
        self._transitions = transitions
        self._gate = gate

    async def find_jobs(self, request: pb.FindJobsRequest, _context: Any) -> pb.FindJobsResponse:
        return pb.FindJobsResponse(job_ids=await self._jobs.find(limits.check_id_prefix(request.prefix)))

    async def count_jobs(self, request: pb.CountJobsRequest, _context: Any) -> pb.CountJobsResponse:
        count, counted_at = await self._selections.count(convert.job_filter(request.filter))
        return pb.CountJobsResponse(count=count, counted_at=convert.timestamp(counted_at))

    async def cancel_jobs(self, request: pb.CancelJobsRequest, _context: Any) -> pb.CancelJobsResponse:
        batch = await self._selections.cancel(
            convert.job_filter(request.filter),
            limits.clean_error(request.reason),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.CancelJobsResponse(canceled=batch.changed, next_page_token=batch.next_token)

    async def retry_jobs(self, request: pb.RetryJobsRequest, _context: Any) -> pb.RetryJobsResponse:
        batch = await self._selections.retry(
            convert.job_filter(request.filter),
            convert.attempts_granted(request),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.RetryJobsResponse(retried=batch.changed, next_page_token=batch.next_token)

    async def prioritize_jobs(
        self, request: pb.PrioritizeJobsRequest, _context: Any
    ) -> pb.PrioritizeJobsResponse:
        batch = await self._selections.prioritize(
            convert.job_filter(request.filter),
            request.priority,
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.PrioritizeJobsResponse(prioritized=batch.changed, next_page_token=batch.next_token)

    async def delete_jobs(self, request: pb.DeleteJobsRequest, _context: Any) -> pb.DeleteJobsResponse:
        batch = await self._selections.delete(
            convert.job_filter(request.filter),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.DeleteJobsResponse(deleted=batch.changed, next_page_token=batch.next_token)

    async def list_dead_letter_groups(
        self, request: pb.ListDeadLetterGroupsRequest, _context: Any
    ) -> pb.ListDeadLetterGroupsResponse:
        sample = await self._dead_letters.groups(
            limits.check_topic(request.topic) if request.topic else None,
            limits.check_page_size(request.limit, tuning.DEAD_LETTER_GROUPS),
        )
        return convert_overview.dead_letter_groups(sample)

    async def watch_jobs(
        self, request: pb.WatchJobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Tell what happens until the watcher leaves, or the server stops."""
        _check_count("topics", len(request.topics))
        _check_count("job_ids", len(request.job_ids))
        topics = [limits.check_topic(topic) for topic in request.topics]
        job_ids = [parse_job_id(job_id, "job_ids") for job_id in request.job_ids]
        with self._transitions.watching(topics, job_ids) as watcher:
            await context.write(pb.WatchJobsResponse())  # from here on nothing is missed unsaid
            async for transitions, missed in watcher.batches():
                await context.write(
                    pb.WatchJobsResponse(
                        transitions=[convert_overview.transition(change) for change in transitions],
                        missed=missed,
                    )
                )

    async def list_topics(self, _request: pb.ListTopicsRequest, _context: Any) -> pb.ListTopicsResponse:
        sample = await self._topics.sample()
        servers = await self._servers.servers()
        asked_for = Counter(
            topic for server in servers for worker in server.workers for topic in worker.topics
        )
        names = sample.depths.keys() | sample.rates.keys() | asked_for.keys() | self._gate.state.topics.keys()
        return pb.ListTopicsResponse(
            topics=[
                convert_overview.topic_view(
                    sample.depths.get(name, TopicDepth(name)),
                    sample.rates.get(name, TopicRates()),
                    sample.latencies.get(name, TopicLatencies()),
                    paused=not self._gate.open_topics(frozenset({name})),
                    workers=asked_for[name],
                )
                for name in sorted(names)
            ],
            counted_at=convert.timestamp(sample.counted_at),
        )

    async def list_workers(self, _request: pb.ListWorkersRequest, _context: Any) -> pb.ListWorkersResponse:
        return pb.ListWorkersResponse(
            workers=[convert_overview.worker_view(report) for report in await self._servers.workers()]
        )


def _check_count(field: str, count: int) -> None:
    if count > limits.MAX_WATCHED:
        raise InvalidArgument(
            field, f"has {count} entries: give at most {limits.MAX_WATCHED}, or none to see everything."
        )
