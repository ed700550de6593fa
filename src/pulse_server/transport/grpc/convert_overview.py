"""The overview, from the domain to messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import tuning
from pulse_server.base.metrics import Latency
from pulse_server.dispatch.rules import WorkerState
from pulse_server.domain.job_facts import Explanation
from pulse_server.doors.boundary import timestamp
from pulse_server.jobs import messages
from pulse_server.jobs.messages import job_view
from pulse_server.reads.dead_letters import DeadLetterGroup
from pulse_server.reads.findings import Finding
from pulse_server.reads.statistics import MinuteReport, Span
from pulse_server.reads.topics import Rates, TopicDepth, TopicLatencies, TopicRates
from pulse_server.reads.workers import WorkerReport
from pulse_server.wakeups.watchers import Transition


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
        wait=latency(latencies.wait),
        run=latency(latencies.run),
    )


def statistics(span: Span) -> pb.GetStatisticsResponse:
    return pb.GetStatisticsResponse(
        minutes=[minute_view(minute) for minute in span.minutes],
        wait=latency(span.wait),
        run=latency(span.run),
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
        wait=latency(minute.wait),
        run=latency(minute.run),
        **depth,
    )


def latency(spread: Latency) -> pb.Latency:
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


def dead_letter_group(group: DeadLetterGroup) -> pb.DeadLetterGroup:
    sample = job_view(group.sample)
    return pb.DeadLetterGroup(
        topic=sample.topic,
        error_group=sample.error_group,
        count=group.count,
        first_at=timestamp(group.first_at),
        last_at=timestamp(group.last_at),
        sample=sample,
    )


def finding(found: Finding) -> pb.Finding:
    return pb.Finding(
        kind=found.kind,
        urgent=found.is_urgent,
        topic=found.topic,
        worker_id=found.worker_id,
        sentence=found.sentence,
        harm=found.harm,
    )


def transition(change: Transition) -> pb.Transition:
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


def explanation(found: Explanation) -> pb.Explanation:
    return pb.Explanation(
        job_id=found.job_id,
        cause=found.cause,
        sentence=found.sentence,
        remedy=found.remedy,
        expected_at=timestamp(found.expected_at),
        brief=found.brief,
    )
