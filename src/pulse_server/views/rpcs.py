"""The RPCs of what is only read.

That is topics, workers, servers, statistics, dead letters, transitions, search and the audit. ExportJobs
sends finished jobs as a stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds, tuning
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import parse_id
from pulse_server.base.loops import each_in_turns
from pulse_server.base.metrics import OTHER_TOPICS, Latency
from pulse_server.database.audit import UNDOABLE
from pulse_server.dispatch.rules import WorkerState
from pulse_server.dispatch.service import Gate
from pulse_server.doors import boundary
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.admission import Responses
from pulse_server.doors.boundary import timestamp
from pulse_server.doors.callers import calling_user
from pulse_server.doors.quotas import CostlyCalls
from pulse_server.jobs import messages
from pulse_server.jobs.messages import job_view
from pulse_server.jobs.rules import TERMINAL, JobStatus, Step
from pulse_server.steps.rpcs import step_view
from pulse_server.views.attention import Attention, DeadLetterGroup, DeadLetters, Finding
from pulse_server.views.explanations import Explanations
from pulse_server.views.gates import Explanation
from pulse_server.views.records import (
    Audit,
    AuditEntry,
    AuditFilter,
    ExportFilter,
    ExportPage,
    Exports,
    Searches,
    Walk,
)
from pulse_server.views.servers import Servers, WorkerReport, workers_page
from pulse_server.views.statistics import (
    ALL_TOPICS,
    MinuteReport,
    Minutes,
    Rates,
    Span,
    TopicDepth,
    TopicLatencies,
    TopicRates,
    TopicsPage,
    TopicsSample,
    busiest_page,
    page_by_name,
)
from pulse_server.wakeups.watchers import Transition, Watchers


def topic_view(
    depth: TopicDepth, rates: TopicRates, latencies: TopicLatencies, *, paused: bool, workers: int
) -> pb.TopicView:
    return pb.TopicView(
        topic=depth.topic,
        ready=depth.ready,
        waiting=depth.waiting,
        waiting_for_jobs=depth.waiting_for_jobs,
        running=depth.running,
        dead_lettered=depth.dead_lettered,
        canceled=depth.canceled,
        oldest_ready_at=timestamp(depth.oldest_ready_at),
        last_minute=_rates(rates.last_minute),
        last_hour=_rates(rates.last_hour),
        paused=paused,
        workers=workers,
        wait=latency_view(latencies.wait),
        run=latency_view(latencies.run),
    )


def statistics_view(span: Span) -> pb.GetStatisticsResponse:
    return pb.GetStatisticsResponse(
        minutes=[minute_view(minute) for minute in span.minutes],
        wait=latency_view(span.wait),
        run=latency_view(span.run),
    )


def minute_view(minute: MinuteReport) -> pb.MinuteView:
    counts = minute.counts
    depth = {} if minute.depth is None else minute.depth._asdict()
    return pb.MinuteView(
        at=_quick_timestamp(minute.at),
        submitted=counts.submitted,
        completed=counts.completed,
        failed=counts.failed,
        retried=counts.retried,
        dead_lettered=counts.dead_lettered,
        canceled=counts.canceled,
        wait=latency_view(minute.wait),
        run=latency_view(minute.run),
        **depth,
    )


def latency_view(spread: Latency) -> pb.Latency:
    return pb.Latency(
        count=spread.count, p50_seconds=spread.p50, p95_seconds=spread.p95, p99_seconds=spread.p99
    )


def worker_view(report: WorkerReport, states: Mapping[tuple[str, str], WorkerState]) -> pb.WorkerView:
    connection = report.connection
    state = states.get((report.worker_id, connection.run_id)) if connection else None
    return pb.WorkerView(
        worker_id=report.worker_id,
        topics=connection.topics[: tuning.WORKER_TOPICS_SHOWN] if connection else (),
        topic_count=len(connection.topics) + connection.topics_left_out if connection else 0,
        capacity=connection.capacity if connection else 0,
        connected_at=timestamp(connection.connected_at if connection else None),
        server=report.server,
        facts=pb.WorkerFacts(**connection.facts._asdict()) if connection else None,
        state=pb.WorkerState(
            name=state.name, reason=state.reason, set_at=timestamp(state.set_at), set_by=state.set_by
        )
        if state
        else None,
        held_count=report.holding.count,
        held=[
            pb.HeldJob(
                job_id=job.job_id,
                topic=job.topic,
                attempt=job.attempt,
                since=timestamp(job.since),
                lease_until=timestamp(job.lease_until),
                progress=messages.view(job.progress),
            )
            for job in report.holding.jobs
        ],
    )


def dead_letter_group_view(group: DeadLetterGroup) -> pb.DeadLetterGroup:
    sample = job_view(group.sample)
    return pb.DeadLetterGroup(
        topic=sample.topic,
        error_group=sample.error_group,
        count=group.count,
        first_at=timestamp(group.first_at),
        last_at=timestamp(group.last_at),
        sample=sample,
    )


def finding_view(found: Finding) -> pb.Finding:
    return pb.Finding(
        kind=found.kind,
        urgent=found.is_urgent,
        topic=found.topic,
        worker_id=found.worker_id,
        sentence=found.sentence,
        harm=found.harm,
    )


def transition_view(change: Transition) -> pb.Transition:
    return pb.Transition(
        job_id=change.job_id,
        topic=change.topic,
        status=change.status.value,
        attempt=change.attempt,
        worker_id=change.worker_id or "",
        error=change.error,
        at=_quick_timestamp(change.at),
        progress=messages.view(change.progress),
    )


def _rates(rates: Rates) -> pb.Rates:
    return pb.Rates(
        submitted=rates.submitted,
        completed=rates.completed,
        failed=rates.failed,
        dead_lettered=rates.dead_lettered,
    )


def _quick_timestamp(moment: datetime) -> Timestamp:
    # A busy queue sends thousands of them a second. FromDatetime takes ten times as long.
    return Timestamp(seconds=int(moment.timestamp()), nanos=moment.microsecond * 1000)


def explanation_view(found: Explanation) -> pb.Explanation:
    return pb.Explanation(
        job_id=found.job_id,
        cause=found.cause,
        sentence=found.sentence,
        remedy=found.remedy,
        expected_at=timestamp(found.expected_at),
        brief=found.brief,
    )


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
            sum=topic_view(
                sample.depth,
                sample.rate,
                TopicLatencies(),
                paused=self._gate.state.everything is not None,
                workers=0,
            ),
        )

    def _topic_view(self, name: str, sample: TopicsSample, workers: int) -> pb.TopicView:
        return topic_view(
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
                lambda report: worker_view(report, self._gate.state.workers), page.entries
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
            return await asyncio.to_thread(statistics_view, span)  # a day takes 15 ms
        return statistics_view(span)

    async def list_dead_letter_groups(
        self, request: pb.ListDeadLetterGroupsRequest, _context: Any
    ) -> pb.ListDeadLetterGroupsResponse:
        sample = await self._dead_letters.groups(
            bounds.check_topic(request.topic) if request.topic else None,
            bounds.check_page_size(request.limit, bounds.DEFAULT_DEAD_LETTER_GROUPS),
        )
        return pb.ListDeadLetterGroupsResponse(
            groups=await each_in_turns(dead_letter_group_view, sample.groups),
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
        return pb.ExplainResponse(explanations=map(explanation_view, found))

    async def list_findings(self, request: pb.ListFindingsRequest, _context: Any) -> pb.ListFindingsResponse:
        limit = bounds.check_page_size(request.limit, bounds.DEFAULT_FINDINGS)
        found, found_at = await self._attention.findings()
        return pb.ListFindingsResponse(
            findings=[finding_view(finding) for finding in found[:limit]],
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
        transitions=[transition_view(change) for change in transitions], missed=missed
    ).SerializeToString()


def _topic(name: str) -> str:
    # Every name that ListTopics returns is valid, also the name of the topics beyond its limit.
    return name if name in (ALL_TOPICS, OTHER_TOPICS) else bounds.check_topic(name)


def _check_watched(field: str, count: int) -> None:
    if count > bounds.MAX_WATCHED:
        raise InvalidArgument(
            field, f"has {count} entries: give at most {bounds.MAX_WATCHED}, or none to see everything."
        )


# Statements of exports at a time: fewer than the connections for reading, which others need as well.
EXPORT_READS = 2


class ExportRpcs:
    def __init__(self, exports: Exports, searches: Searches, responses: Responses) -> None:
        self._exports = exports
        self._searches = searches
        self._responses = responses
        # The turn is for one page: several exports take turns, and a caller that reads slowly has none.
        self._read = CostlyCalls(EXPORT_READS).limited(_read_next)

    async def search_jobs(self, request: pb.SearchJobsRequest, _context: Any) -> pb.SearchJobsResponse:
        found = await self._searches.search(
            request.text,
            messages.job_filter(request.filter),
            limit=bounds.check_page_size(request.limit, bounds.DEFAULT_PAGE_SIZE),
            token=request.page_token,
        )
        return pb.SearchJobsResponse(
            jobs=await each_in_turns(messages.job_view, found.jobs),
            compared=found.compared,
            compared_to=boundary.timestamp(found.compared_to),
            next_page_token=found.next_token,
        )

    async def export_jobs(
        self, request: pb.ExportJobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Stream the jobs until nothing is left, or the caller disconnects."""
        walk = await self._exports.start(_wanted(request), request.page_token)
        caller = calling_user() or peer_address(context.peer())
        while not walk.is_done:
            page: ExportPage = await self._read(walk, context)
            message = pb.ExportJobsResponse(
                jobs=await each_in_turns(messages.job_view, page.jobs),
                steps=await each_in_turns(_steps_of_job, list(page.steps.items())),
                next_page_token=walk.token,
                finished_before=boundary.timestamp(walk.finished_before),
            )
            del page
            data = message.SerializeToString()
            del message
            await self._responses.send(data, caller, context)


async def _read_next(walk: Walk, _context: Any) -> ExportPage:
    return await walk.next()


def _steps_of_job(of_job: tuple[str, list[Step]]) -> pb.StepsOfJob:
    job_id, steps = of_job
    return pb.StepsOfJob(job_id=job_id, steps=[step_view(step, with_value=False) for step in steps])


def _wanted(request: pb.ExportJobsRequest) -> ExportFilter:
    statuses = messages.wanted_statuses(request) or TERMINAL
    for status in statuses - TERMINAL:
        finished = ", ".join(status for status in JobStatus if status in TERMINAL)
        raise InvalidArgument(
            "status", f"{status.value!r} is none of {finished}: only finished jobs are exported."
        )
    return ExportFilter(
        finished_before=_moment(request, "finished_before") or bounds.LAST_MOMENT,
        finished_since=_moment(request, "finished_since"),
        topics=messages.wanted_topics(request),
        statuses=statuses,
    )


def _moment(request: pb.ExportJobsRequest, field: str) -> datetime | None:
    if not request.HasField(field):  # type: ignore[arg-type]  # it has both
        return None
    return bounds.check_run_at(boundary.moment(getattr(request, field), field), field)


_LONGEST_NAME = 200


class AuditRpcs:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def list_audit(self, request: pb.ListAuditRequest, _context: Any) -> pb.ListAuditResponse:
        wanted = AuditFilter(
            user=bounds.check_text(request.user, "user", _LONGEST_NAME) or None,
            method=bounds.check_text(request.method, "method", _LONGEST_NAME) or None,
            topic=bounds.check_topic(request.topic) if request.topic else None,
            id=parse_id(request.id, "id") if request.id else None,
            since=boundary.moment(request.since, "since") if request.HasField("since") else None,
            refused=request.refused,
        )
        limit = bounds.check_page_size(request.page_size, bounds.DEFAULT_PAGE_SIZE, "page_size")
        page = await self._audit.page(wanted, limit=limit, token=request.page_token)
        return pb.ListAuditResponse(
            entries=await each_in_turns(_wire_entry, page.entries), next_page_token=page.next_token
        )


def _wire_entry(entry: AuditEntry) -> pb.AuditEntry:
    return pb.AuditEntry(
        action_id=entry.id,
        at=boundary.timestamp(entry.at),
        user=entry.user,
        role=entry.role,
        address=entry.address,
        method=entry.method,
        reason=entry.reason,
        topic=entry.topics[0] if len(entry.topics) == 1 else "",
        ids=entry.ids,
        count=entry.count,
        outcome=entry.outcome,
        refusal=entry.refusal,
        asked_json=json.dumps(entry.asked) if entry.asked else "",
        changes_json=json.dumps(entry.changes) if entry.changes else "",
        can_undo=entry.method in UNDOABLE and entry.outcome == "OK",
    )
