"""The RPCs of the overview: topics, workers, servers, statistics, dead letters and transitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import parse_id
from pulse_server.base.loops import each_in_turns
from pulse_server.base.metrics import OTHER_TOPICS
from pulse_server.dispatch.service import Gate
from pulse_server.doors import boundary
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.admission import Responses
from pulse_server.doors.callers import calling_user
from pulse_server.reads.attention import Attention
from pulse_server.reads.dead_letters import DeadLetters
from pulse_server.reads.explanations import Explanations
from pulse_server.reads.servers import Servers
from pulse_server.reads.statistics import ALL_TOPICS, Minutes
from pulse_server.reads.topics import (
    TopicDepth,
    TopicLatencies,
    TopicRates,
    TopicsPage,
    TopicsSample,
    busiest_page,
    page_by_name,
)
from pulse_server.reads.workers import workers_page
from pulse_server.transport.grpc import convert_overview
from pulse_server.wakeups.watchers import Transition, Watchers


class OverviewRpcs:
    def __init__(
        self,
        attention: Attention,
        minutes: Minutes,
        dead_letters: DeadLetters,
        servers: Servers,
        watchers: Watchers,
        gate: Gate,
        responses: Responses,
        explanations: Explanations,
    ) -> None:
        self._attention = attention
        self._topics = attention.topics
        self._minutes = minutes
        self._dead_letters = dead_letters
        self._servers = servers
        self._watchers = watchers
        self._gate = gate
        self._responses = responses
        self._explanations = explanations

    async def list_topics(self, request: pb.ListTopicsRequest, _context: Any) -> pb.ListTopicsResponse:
        bounds.check_count("topics", len(request.topics), bounds.MAX_PAGE_SIZE)
        search = bounds.check_search(request.search, "search") or ""
        limit = bounds.check_page_size(request.page_size, 0, "page_size")
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
            counted_at=boundary.timestamp(sample.counted_at),
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
        limit = bounds.check_page_size(request.page_size, 0, "page_size")
        page = workers_page(await self._servers.workers(), limit=limit, token=request.page_token)
        return pb.ListWorkersResponse(
            workers=await each_in_turns(
                lambda report: convert_overview.worker_view(report, self._gate.state.workers), page.entries
            ),
            next_page_token=page.next_token,
        )

    async def list_servers(self, request: pb.ListServersRequest, _context: Any) -> pb.ListServersResponse:
        return pb.ListServersResponse(
            servers=[
                pb.ServerView(
                    server_id=server.id,
                    name=server.name,
                    started_at=boundary.timestamp(server.started_at),
                    workers=len(server.workers),
                    address=server.address,
                    version=server.version,
                    silent_since=boundary.timestamp(server.silent_since),
                )
                for server in await self._servers.servers(silent=request.silent)
            ]
        )

    async def get_statistics(
        self, request: pb.GetStatisticsRequest, _context: Any
    ) -> pb.GetStatisticsResponse:
        span = await self._minutes.last(bounds.check_minutes(request.minutes), _topic(request.topic))
        if len(span.minutes) > bounds.DEFAULT_MINUTES:
            return await asyncio.to_thread(convert_overview.statistics, span)  # a day takes 15 ms
        return convert_overview.statistics(span)

    async def list_dead_letter_groups(
        self, request: pb.ListDeadLetterGroupsRequest, _context: Any
    ) -> pb.ListDeadLetterGroupsResponse:
        sample = await self._dead_letters.groups(
            bounds.check_topic(request.topic) if request.topic else None,
            bounds.check_page_size(request.limit, bounds.DEFAULT_DEAD_LETTER_GROUPS),
        )
        return pb.ListDeadLetterGroupsResponse(
            groups=await each_in_turns(convert_overview.dead_letter_group, sample.groups),
            groups_left_out=sample.left_out,
            counted_at=boundary.timestamp(sample.counted_at),
        )

    async def explain(self, request: pb.ExplainRequest, _context: Any) -> pb.ExplainResponse:
        bounds.check_count("job_ids", len(request.job_ids), bounds.MAX_EXPLAINED)
        if bool(request.job_ids) == bool(request.topic):
            raise InvalidArgument("job_ids", "and topic: give one of the two.")
        if request.topic:
            found = [await self._explanations.of_topic(bounds.check_topic(request.topic))]
        else:
            found = await self._explanations.of_jobs([parse_id(text, "job_ids") for text in request.job_ids])
        return pb.ExplainResponse(explanations=map(convert_overview.explanation, found))

    async def list_findings(self, request: pb.ListFindingsRequest, _context: Any) -> pb.ListFindingsResponse:
        limit = bounds.check_page_size(request.limit, bounds.DEFAULT_FINDINGS)
        found, found_at = await self._attention.findings()
        return pb.ListFindingsResponse(
            findings=[convert_overview.finding(finding) for finding in found[:limit]],
            findings_left_out=max(0, len(found) - limit),
            found_at=boundary.timestamp(found_at),
        )

    async def watch_jobs(
        self, request: pb.WatchJobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Stream transitions until the watcher disconnects or the server stops."""
        _check_watched("topics", len(request.topics))
        _check_watched("job_ids", len(request.job_ids))
        topics = [bounds.check_topic(topic) for topic in request.topics]
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
    return name if name in (ALL_TOPICS, OTHER_TOPICS) else bounds.check_topic(name)


def _check_watched(field: str, count: int) -> None:
    if count > bounds.MAX_WATCHED:
        raise InvalidArgument(
            field, f"has {count} entries: give at most {bounds.MAX_WATCHED}, or none to see everything."
        )
