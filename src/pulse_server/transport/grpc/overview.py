"""The RPCs of the overview: topics, workers, servers, statistics, dead letters and transitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.ids import parse_id
from pulse_server.domain.transitions import Transition
from pulse_server.reads.dead_letters import DeadLetters
from pulse_server.reads.servers import Servers, workers_page
from pulse_server.reads.statistics import ALL_TOPICS, Minutes
from pulse_server.reads.topics import (
    TopicDepth,
    TopicLatencies,
    TopicRates,
    Topics,
    TopicsPage,
    TopicsSample,
    busiest_page,
    page_by_name,
)
from pulse_server.service.dispatch import Gate
from pulse_server.telemetry.metrics import OTHER_TOPICS
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc import convert_overview, convert_times
from pulse_server.transport.grpc.responses import Responses
from pulse_server.transport.grpc.worker_ids import calling_user
from pulse_server.turns import each_in_turns
from pulse_server.watchers import Watchers


class OverviewRpcs:
    def __init__(
        self,
        topics: Topics,
        minutes: Minutes,
        dead_letters: DeadLetters,
        servers: Servers,
        watchers: Watchers,
        gate: Gate,
        responses: Responses,
    ) -> None:
        self._topics = topics
        self._minutes = minutes
        self._dead_letters = dead_letters
        self._servers = servers
        self._watchers = watchers
        self._gate = gate
        self._responses = responses

    async def list_topics(self, request: pb.ListTopicsRequest, _context: Any) -> pb.ListTopicsResponse:
        limits.check_count("topics", len(request.topics), limits.MAX_PAGE_SIZE)
        search = limits.check_search(request.search, "search") or ""
        limit = limits.check_page_size(request.page_size, 0, "page_size")
        sample = await self._topics.sample()
        workers = await self._servers.workers_by_topic()
        others = {*workers, *self._gate.state.topics}
        if request.topics:
            names = sorted({_topic(name) for name in request.topics})
            page = TopicsPage(names, "", len(names))
        elif request.order == pb.TOPIC_ORDER_BUSIEST:
            page = await busiest_page(sample, others, search=search, limit=limit)
        else:
            page = await page_by_name(sample, others, search=search, limit=limit, token=request.page_token)
        return pb.ListTopicsResponse(
            topics=await each_in_turns(
                lambda name: self._topic_view(name, sample, workers[name]), page.names
            ),
            counted_at=convert_times.timestamp(sample.counted_at),
            next_page_token=page.next_token,
            total=page.total,
            sum=convert_overview.topic_view(
                sample.depth,
                sample.rate,
                TopicLatencies(),
                paused=self._gate.state.everything is not None,
                workers=0,
            ),
        )

    def _topic_view(self, name: str, sample: TopicsSample, workers: int) -> pb.TopicView:
        return convert_overview.topic_view(
            sample.depths.get(name, TopicDepth(name)),
            sample.rates.get(name, TopicRates()),
            sample.latencies.get(name, TopicLatencies()),
            paused=not self._gate.state.open_topics(frozenset({name})),
            workers=workers,
        )

    async def list_workers(self, request: pb.ListWorkersRequest, _context: Any) -> pb.ListWorkersResponse:
        limit = limits.check_page_size(request.page_size, 0, "page_size")
        page = workers_page(await self._servers.workers(), limit=limit, token=request.page_token)
        return pb.ListWorkersResponse(
            workers=await each_in_turns(convert_overview.worker_view, page.entries),
            next_page_token=page.next_token,
        )

    async def list_servers(self, _request: pb.ListServersRequest, _context: Any) -> pb.ListServersResponse:
        return pb.ListServersResponse(
            servers=[
                pb.ServerView(
                    server_id=server.id,
                    name=server.name,
                    started_at=convert_times.timestamp(server.started_at),
                    workers=len(server.workers),
                )
                for server in await self._servers.servers()
            ]
        )

    async def get_statistics(
        self, request: pb.GetStatisticsRequest, _context: Any
    ) -> pb.GetStatisticsResponse:
        span = await self._minutes.last(limits.check_minutes(request.minutes), _topic(request.topic))
        if len(span.minutes) > limits.DEFAULT_MINUTES:
            return await asyncio.to_thread(convert_overview.statistics, span)  # a day takes 15 ms
        return convert_overview.statistics(span)

    async def list_dead_letter_groups(
        self, request: pb.ListDeadLetterGroupsRequest, _context: Any
    ) -> pb.ListDeadLetterGroupsResponse:
        sample = await self._dead_letters.groups(
            limits.check_topic(request.topic) if request.topic else None,
            limits.check_page_size(request.limit, limits.DEFAULT_DEAD_LETTER_GROUPS),
        )
        return pb.ListDeadLetterGroupsResponse(
            groups=await each_in_turns(convert_overview.dead_letter_group, sample.groups),
            groups_left_out=sample.left_out,
            counted_at=convert_times.timestamp(sample.counted_at),
        )

    async def watch_jobs(
        self, request: pb.WatchJobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Stream transitions until the watcher disconnects or the server stops."""
        _check_watched("topics", len(request.topics))
        _check_watched("job_ids", len(request.job_ids))
        topics = [limits.check_topic(topic) for topic in request.topics]
        job_ids = [parse_id(job_id, "job_ids") for job_id in request.job_ids]
        caller = calling_user() or peer_address(context.peer())
        with self._watchers.watching(topics, job_ids, progress=request.progress) as watcher:
            # From here on the watcher is notified of missed transitions.
            await context.write(pb.WatchJobsResponse())
            async for transitions, missed in watcher.batches():
                data = _watch_message(transitions, missed)
                if not self._responses.has_room(caller, data):
                    data = _watch_message((), missed + len(transitions))
                await self._responses.send(data, caller, context)


def _watch_message(transitions: Sequence[Transition], missed: int) -> bytes:
    """Return the message as bytes: for a watcher that does not read, only these stay in memory."""
    return pb.WatchJobsResponse(
        transitions=[convert_overview.transition(change) for change in transitions], missed=missed
    ).SerializeToString()


def _topic(name: str) -> str:
    # Every name that ListTopics returns is valid, also the name of the topics beyond its limit.
    return name if name in (ALL_TOPICS, OTHER_TOPICS) else limits.check_topic(name)


def _check_watched(field: str, count: int) -> None:
    if count > limits.MAX_WATCHED:
        raise InvalidArgument(
            field, f"has {count} entries: give at most {limits.MAX_WATCHED}, or none to see everything."
        )
