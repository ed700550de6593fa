"""The publisher: after each commit it counts the change, announces it to watchers and wakes dispatch.

One method per transition of docs/job-lifecycle.md. A service asks the store for a change and publishes the
answer here. Besides workflows/service.py nothing else counts jobs, announces transitions or wakes the hub.
All methods take whole batches.

A claim is also a span in the trace that the job carries with it, where OpenTelemetry is installed and a
provider was set, by serving.py or by opentelemetry-instrument. docs/figures.md#traces
"""

from __future__ import annotations

import logging
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from pulse_server.base.bounds import SNOOZED_TOO_OFTEN
from pulse_server.base.errors import PulseError
from pulse_server.base.metrics import Counter, Metrics
from pulse_server.dispatch.roster import Roster
from pulse_server.jobs.new_jobs import NewJob, Submitted, inserted_and_taken, kinds, topics_of
from pulse_server.jobs.reports import (
    Arrival,
    Completions,
    FailureReport,
    Fired,
    StoredProgress,
    completions_of,
    levels_of,
)
from pulse_server.jobs.rules import Cancellation, Claim, ClaimedJob, Ended, Job, JobStatus, Level, Reaped
from pulse_server.wakeups.watchers import (
    Wakeup,
    WakeupLine,
    Watchers,
    of_change,
    of_claim,
    of_new,
    of_progress,
    of_reap,
    of_start,
    of_wait,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
except ModuleNotFoundError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

log = logging.getLogger(__name__)


def claim_spans() -> ClaimSpans | None:
    """The recorder of claims, or None if no provider is set."""
    if not IS_INSTALLED:
        return None
    try:
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return None
        return ClaimSpans(trace.get_tracer("pulse"))
    except Exception as error:  # such as OTEL_PROPAGATORS with one that is not installed
        log.warning("claims_not_traced", extra={"reason": f"OpenTelemetry cannot be used: {error}"})
        return None


class ClaimSpans:
    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import propagate  # reads its variables when it is loaded, and refuses wrong ones

        self._tracer = tracer
        self._propagator = propagate.get_global_textmap()
        self._carriers = frozenset(self._propagator.fields)
        self._nothing = Context()

    def record(self, jobs: Iterable[ClaimedJob], sent_at: int) -> None:
        """Record a claim in the trace of each job that has one and is sampled: from its start until now."""
        answered_at = time.time_ns()
        try:
            for job in jobs:
                if job.metadata is not None and not self._carriers.isdisjoint(job.metadata):
                    self._record(job, job.metadata, sent_at, answered_at)
        except Exception:  # of a third-party propagator or processor: the jobs are claimed and must be sent
            log.exception("claim_not_traced")

    def _record(self, job: ClaimedJob, carrier: Mapping[str, str], sent_at: int, answered_at: int) -> None:
        if _is_dropped(carrier.get("traceparent", "")):
            return
        parent = self._propagator.extract(carrier, self._nothing)
        if not trace.get_current_span(parent).get_span_context().trace_flags.sampled:
            return
        # Internal: on a map of services, the producer talks to the worker.
        span = self._tracer.start_span(
            f"claim {job.topic}",
            parent,
            trace.SpanKind.INTERNAL,
            {
                "messaging.system": "pulse",
                "messaging.destination.name": job.topic,
                "messaging.operation.name": "claim",
                "messaging.operation.type": "receive",
                "messaging.message.id": job.id,
                "pulse.job.attempt": job.attempt,
                "pulse.job.max_attempts": job.max_attempts,
                "pulse.job.waited_seconds": job.waited_seconds,
                "pulse.worker.id": job.worker_id,
            },
            start_time=sent_at,
        )
        span.end(answered_at)


def _is_dropped(traceparent: str) -> bool:
    """Whether the flags of a W3C context show that its trace is not sampled.

    In production most are not, and to read one in full takes 10 µs.
    """
    return len(traceparent) == 55 and traceparent[-1] in "02468ace"


_topic = attrgetter("topic")


class Publisher:
    def __init__(
        self,
        metrics: Metrics,
        watchers: Watchers,
        roster: Roster,
        line: WakeupLine,
        spans: ClaimSpans | None,
        nudge_settler: Callable[[], None],
    ) -> None:
        """`nudge_settler` is called when jobs of workflows may have ended, or come back."""
        self._metrics = metrics
        self._watchers = watchers
        self._roster = roster
        self._line = line
        self._spans = spans
        self._nudge_settler = nudge_settler

    # --- jobs come in

    def submitted(
        self, jobs: Sequence[NewJob], answers: Sequence[Submitted | PulseError], seconds: float | None = None
    ) -> None:
        """Jobs whose answer is a Submitted were stored. Some may be claimed already.

        `seconds`: how long ago the statement was sent, if known.
        """
        inserted, taken = inserted_and_taken(jobs, answers)
        self._metrics.count_topics(self._metrics.submitted, topics_of(inserted))
        self._watchers.publish(lambda: [of_new(job.id, job.topic) for job in inserted if job.id not in taken])
        # Duplicates too: the server that stored the first may have died before it woke dispatch.
        waiting = [job for job in jobs if job.id not in taken] if taken else kinds(jobs)
        ready = [job for job in waiting if job.may_be_ready]
        levels: set[Level] = set()
        if seconds is not None:
            new = {job.id for job in inserted} if len(inserted) < len(jobs) else None
            older = set() if new is None else {job.topic for job in jobs if job.id not in new}
            levels = {Level(job.topic, job.priority, seconds) for job in ready if job.topic not in older}
        self._roster.jobs_ready({job.topic for job in ready}, levels, len(jobs) - len(taken))

    def fired(self, fires: Sequence[Fired], now: datetime) -> None:
        """Schedules made jobs by their timetables. A fire without a job made none."""
        made = [fire for fire in fires if fire.job_id]
        self._roster.jobs_ready({fire.topic for fire in made}, jobs=len(made))
        self._watchers.publish(lambda: [of_new(fire.job_id, fire.topic) for fire in made if fire.job_id])
        for fire in made:
            self._metrics.submitted.add(self._metrics.topic(fire.topic))
            self._metrics.schedule_lateness.observe(value=(now - fire.occurrence).total_seconds())

    def fired_by_hand(self, job_id: str, topic: str) -> None:
        """An operator fired a schedule beside its timetable."""
        self._metrics.submitted.add(self._metrics.topic(topic))
        self._watchers.publish(lambda: [of_new(job_id, topic)])
        self._roster.jobs_ready({topic})

    def arrived(self, arrivals: Sequence[Arrival], seconds: float) -> None:
        """Applications stored and completed jobs in their own transactions.

        The statement that found them was sent this many seconds ago.
        """
        new = [arrival for arrival in arrivals if arrival.jobs]
        for arrival in new:
            self._metrics.submitted.add(self._metrics.topic(arrival.topic), by=arrival.jobs)
        if new:
            self._watchers.publish(
                lambda: [of_new(job_id, arrival.topic) for arrival in new for job_id in arrival.ids]
            )
        if levels := levels_of(arrivals, seconds):
            waiting = sum(arrival.jobs or 1 for arrival in arrivals if arrival.level is not None)
            self._roster.jobs_ready({level.topic for level in levels}, levels, waiting)
        if completions := completions_of(arrivals):
            self.completed(completions)

    def promoted(self, topics: Collection[str], levels: Iterable[Level] = (), jobs: int = 1) -> None:
        """`jobs` jobs of the topics became ready. Their status did not change."""
        self._roster.jobs_ready(topics, levels, jobs)

    # --- workers get them

    def handed_over(self, jobs: Sequence[ClaimedJob], sent_at: int) -> None:
        """The jobs were stored and claimed in one statement. `submitted` counts them too."""
        self._watchers.publish(lambda: [of_new(job.id, job.topic) for job in jobs])
        self.claimed(jobs, sent_at)

    def claimed(self, jobs: Sequence[ClaimedJob], sent_at: int) -> None:
        """The jobs were claimed by a statement that was sent at that time, in nanoseconds."""
        if not jobs:
            return
        if self._spans is not None:
            self._spans.record(jobs, sent_at)
        metrics = self._metrics
        waited: dict[str, list[float]] = {}
        for topic, neighbors in groupby(jobs, _topic):  # most claims are of one topic
            waited.setdefault(topic, []).extend([job.waited_seconds for job in neighbors])
        for topic, seconds in waited.items():
            metrics.count_and_observe(metrics.claimed, metrics.queue_wait, topic, seconds)
        self._watchers.publish(lambda: [of_start(job) for job in jobs])

    def progressed(self, stored: Sequence[StoredProgress]) -> None:
        """Handlers reported progress, and it was stored."""
        self._watchers.publish_progress(lambda: [of_progress(entry) for entry in stored])

    # --- and end them

    def completed(self, completions: Completions) -> None:
        metrics = self._metrics
        for topic, ran_seconds, _, in_workflows in completions.by_topic:
            metrics.count_and_observe(metrics.completed, metrics.run_time, topic, ran_seconds, "completed")
            if in_workflows:
                self._nudge_settler()
        self._watchers.publish_ends(
            lambda: [
                of_claim(claim, topic, JobStatus.COMPLETED) for claim, topic in completions.with_topics()
            ]
        )
        self._roster.runs_ended(of_topic.topic for of_topic in completions.by_topic)

    def failed(self, failures: Sequence[tuple[FailureReport, Ended]]) -> None:
        """The attempts failed: each job is retried, or dead-lettered."""
        metrics = self._metrics
        for report, ended in failures:
            topic = metrics.topic(ended.topic, is_worked=True)
            kind = "discarded" if report.discard else "timed_out" if report.timed_out else "error"
            metrics.failed.add(topic, kind)
            metrics.run_time.observe(topic, "failed", value=ended.ran_seconds)
            self._count_end(topic, ended.status)
        self._watchers.publish_ends(
            lambda: [
                of_claim(report.claim, ended.topic, ended.status, report.error) for report, ended in failures
            ]
        )
        self._roster.runs_ended(ended.topic for _, ended in failures)

    def snoozed(self, snoozed: Mapping[Claim, Ended]) -> None:
        """Handlers asked to run their jobs later: each waits, or is dead-lettered after too many snoozes."""
        self._waits(snoozed, "snoozed", self._metrics.snoozed, SNOOZED_TOO_OFTEN)

    def suspended(self, suspended: Mapping[Claim, Ended], ready: Collection[str], too_many: str) -> None:
        """Handlers sleep or wait for a signal. In the topics `ready` one has come; a job that has too many
        steps is dead-lettered, with that error."""
        self._waits(suspended, "suspended", self._metrics.suspended, too_many)
        self._roster.jobs_ready(ready)

    def _waits(self, waiting: Mapping[Claim, Ended], how: str, count: Counter, last_error: str) -> None:
        metrics = self._metrics
        for ended in waiting.values():
            topic = metrics.topic(ended.topic, is_worked=True)
            metrics.run_time.observe(topic, how, value=ended.ran_seconds)
            (metrics.dead_lettered if ended.status is JobStatus.DEAD_LETTERED else count).add(topic)
            if ended.status is JobStatus.DEAD_LETTERED:
                self._nudge_settler()
        self._watchers.publish_ends(
            lambda: [of_wait(claim, ended, last_error) for claim, ended in waiting.items()]
        )
        self._roster.runs_ended(ended.topic for ended in waiting.values())

    def released(self, claims: Sequence[Claim], topics: Mapping[str, str]) -> None:
        """Jobs were released unstarted. `topics` maps the ids of released jobs to their topics."""
        self._metrics.count_topics(self._metrics.released, topics.values())
        self._watchers.publish(
            lambda: [
                of_claim(claim, topics[claim.job_id], JobStatus.RETRYING)
                for claim in claims
                if claim.job_id in topics
            ]
        )
        self._roster.jobs_released(set(topics.values()), len(topics))

    def reaped(self, reaped: Sequence[Reaped]) -> None:
        """Leases expired, and their jobs were taken back. They are stopped in workers of all servers."""
        metrics = self._metrics
        for entry in reaped:
            topic = metrics.topic(entry.topic, is_worked=True)
            metrics.reaped.add(topic)
            if entry.delivered:  # else the attempt was given back: nothing failed
                metrics.failed.add(topic, "timed_out" if entry.timed_out else "lease_expired")
                self._count_end(topic, entry.status)
        self._watchers.publish_ends(lambda: [of_reap(entry) for entry in reaped])
        if claims := [entry.claim for entry in reaped]:
            self._roster.expire_claims(claims)
            self._line.announce(Wakeup(lapsed=tuple(claims)))
        self._roster.runs_ended(entry.topic for entry in reaped)

    # --- operators act

    def canceled(self, canceled: Sequence[Cancellation], reason: str) -> None:
        if claims := [entry.ended_claim for entry in canceled if entry.ended_claim]:
            self._roster.stop_claims(claims)
            self._line.announce(Wakeup(ended=tuple(claims)))
        self._metrics.count_topics(self._metrics.canceled, [entry.job.topic for entry in canceled])
        self._watchers.publish_ends(lambda: [of_change(entry.job, reason) for entry in canceled])
        # A job that waited may have held its lane.
        self._roster.runs_ended(entry.job.topic for entry in canceled)
        if any(entry.job.workflow_id for entry in canceled):
            self._nudge_settler()

    def retried(self, jobs: Sequence[Job]) -> None:
        self._metrics.count_topics(self._metrics.redriven, [job.topic for job in jobs])
        self._watchers.publish(lambda: [of_change(job) for job in jobs])
        self._roster.jobs_ready({job.topic for job in jobs}, jobs=len(jobs))
        if any(job.workflow_id for job in jobs):
            self._nudge_settler()

    def prioritized(self, jobs: Sequence[Job]) -> None:
        """The order of claims has changed, not whether there are jobs to claim: dispatch is not woken."""
        self._roster.floors.forget({job.topic for job in jobs})

    def undone(self, moved: Sequence[Job], topics: Collection[str]) -> None:
        """An action on jobs of the topics was undone. `moved` wait again, or are finished again; the others
        have their old priority. Not counted: the counters have the action itself."""
        self._watchers.publish_ends(lambda: [of_change(job) for job in moved])
        self._roster.floors.forget(topics)
        self._roster.jobs_ready({job.topic for job in moved if job.finished_at is None}, jobs=len(moved))
        # A job that waits no more may have stood before others in its lane.
        self._roster.runs_ended(job.topic for job in moved if job.finished_at is not None)
        if any(job.workflow_id for job in moved):
            self._nudge_settler()

    def deleted(self, statuses: Iterable[JobStatus] | Mapping[JobStatus, int], actor: str) -> None:
        """Finished jobs were deleted, by an operator or by retention. Watchers are not notified."""
        for status, count in Tally(statuses).items():
            self._metrics.deleted.add(status.value, actor, by=count)

    def paused_or_resumed(self) -> None:
        """A pause switch was turned here, or the state of a worker set. The other servers read them."""
        self._line.announce(Wakeup(gate_changed=True))

    def limits_changed(self, topics: Collection[str]) -> None:
        """Limits of the topics were set or removed here, or holds ended. This server knows them."""
        self._roster.limits_changed(topics)

    def settings_changed(self) -> None:
        """The settings of a topic were set or declared here. The other servers read them."""
        self._line.announce(Wakeup(settings_changed=True))

    def batch_sent(self, what: str, size: int) -> None:
        """A statement with `size` items is about to be sent."""
        self._metrics.batch_size.observe(what, value=size)

    def _count_end(self, topic: str, status: JobStatus) -> None:
        """Count a failed attempt as dead-lettered or retried."""
        is_over = status is JobStatus.DEAD_LETTERED
        if is_over:
            self._nudge_settler()
        (self._metrics.dead_lettered if is_over else self._metrics.retried).add(topic)
