"""Why a job does not run, in a sentence: its state, and the first gate of the claim that is closed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pulse_server.domain.claim_gates import (
    hindered,
    lane_gate,
    limit_gate,
    topic_gate,
    unlisted,
    worker_gate,
)
from pulse_server.domain.job_facts import Ahead, Explanation, JobFacts, TopicWorkers
from pulse_server.domain.phrases import clock, cut, ended, plural, span

# Later due times stand for a wait without an end.
_WITHOUT_END = datetime(9000, 1, 1, tzinfo=UTC)
# A worker counts as silent once its last heartbeat is this many intervals old: one was missed.
_SILENT_HEARTBEATS = 2


def explain_job(
    job: JobFacts, workers: TopicWorkers, ahead: Ahead | None, heartbeat: timedelta, lease: timedelta
) -> Explanation:
    """`ahead` is None if it was not counted."""
    if job.finished_at is not None:
        found = _finished(job)
    elif job.status == "RUNNING":
        found = _running(job, heartbeat, lease)
    else:
        found = (
            _waiting(job)
            or topic_gate(job, workers)
            or _locked(job)
            or lane_gate(job)
            or limit_gate(job, ahead)
            or worker_gate(job, workers, ahead)
        )
        if (then := _closed_afterwards(job, workers, ahead, found)) is not None:
            found = replace(
                found,
                sentence=f"{found.sentence} {then.sentence}",
                brief=f"{found.brief}; {then.brief}",
                remedy="; ".join(filter(None, [found.remedy, then.remedy])),
                expected_at=then.expected_at,
            )
    return replace(found, job_id=job.id)


def explain_topic(topic: JobFacts, workers: TopicWorkers, next_job: Explanation | None) -> Explanation:
    """`next_job` explains the job that is next. None: no job of the topic waits."""
    gate = topic_gate(topic, workers) or limit_gate(topic)
    if gate is not None:
        return replace(
            gate,
            sentence=gate.sentence.replace("Its topic", "The topic").replace("its topic", "the topic"),
            brief=gate.brief.replace("its topic", "the topic"),
        )
    if next_job is not None and next_job.cause:
        sentence = f"Its next job is {next_job.job_id}. {next_job.sentence}"
        return replace(next_job, job_id="", sentence=sentence)
    if not workers.count:
        return unlisted(topic, workers)
    free = f"{workers.free:,} of {workers.capacity:,} slots free.{hindered(workers, topic.now)}"
    slots = f"{plural(workers.count, 'worker')} with {free}"
    if next_job is None:
        return Explanation("", f"No job of the topic waits. It has {slots}", "no job waits")
    return Explanation("", f"Nothing stops it: it has {slots}", "starts jobs")


def _closed_afterwards(
    job: JobFacts, workers: TopicWorkers, ahead: Ahead | None, found: Explanation
) -> Explanation | None:
    """The gate that stays closed beyond the wait that was found."""
    if job.held or found.cause in ("dispatch_paused", "topic_paused", "workers_quiet", "no_worker"):
        return None
    if not job.queued and (gate := topic_gate(job, workers)) is not None:
        return gate
    gate = limit_gate(job, ahead)
    # A full limit may have room by then.
    if gate is None or found.expected_at is None or gate.cause in (found.cause, "topic_limit", "pool_limit"):
        return None
    return gate if gate.expected_at is None or gate.expected_at > found.expected_at else None


def waits_in_line(job: JobFacts, workers: TopicWorkers) -> bool:
    """Whether the job waits for its turn: only full workers keep it from starting, or limits of its topic."""
    if not job.is_ready or topic_gate(job, workers) or lane_gate(job):
        return False
    return limit_gate(job) is not None or (workers.count > 0 and not workers.free)


def _finished(job: JobFacts) -> Explanation:
    assert job.finished_at is not None
    at, error = clock(job.finished_at, job.now), cut(job.last_error)
    because = f" {error}" if error else ""
    retry = f"Run it again: pulse jobs retry {job.id}"
    if job.status == "COMPLETED":
        return Explanation("finished", f"It has completed, at {at}, in attempt {job.attempts}.", "completed")
    if job.status == "CANCELED":
        return Explanation("finished", f"It was canceled at {at}.{because}", "canceled", retry)
    made = f"after {plural(job.attempts, 'attempt')}"
    return Explanation(
        "finished", f"It has been a dead letter since {at}, {made}.{because}", "dead letter", retry
    )


def _running(job: JobFacts, heartbeat: timedelta, lease: timedelta) -> Explanation:
    worker, left = job.locked_by, job.lease_until or job.now
    held, runs = "holds it", f"runs on {worker}"
    if job.started_at is not None:
        at = clock(job.started_at, job.now)
        held, runs = f"has held it since {at}", f"has been running on {worker} since {at}"
    until = max(left, job.spared_until or left)
    rest = f"recovered in {span(until - job.now)}" if until > job.now else "recovered soon"
    then = "becomes a dead letter" if job.attempts >= job.max_attempts else "is retried"
    follows = f"It {then} when its lease ends, by itself."
    if not job.is_connected:
        return Explanation(
            "worker_gone",
            f"Its worker {worker} is not connected to any server, and {held}.",
            f"worker gone, {rest}",
            follows,
            until,
        )
    silent_for = job.now - (left - lease)
    # Before the lease ends, also where the interval is long.
    if silent_for > min(_SILENT_HEARTBEATS * heartbeat, (heartbeat + lease) / 2) and job.is_row_locked:
        who, remedy = _holder(job)
        return Explanation(
            "locked",
            f"It runs on {worker}, and {who} has its row locked, as after ctx.complete. Until that ends, no "
            "heartbeat and no result is stored.",
            f"locked by {who}",
            remedy,
        )
    if silent_for > min(_SILENT_HEARTBEATS * heartbeat, (heartbeat + lease) / 2):
        return Explanation(
            "worker_silent",
            f"Its worker {worker} has sent no heartbeat for {span(silent_for)}, the attempt is past its time "
            "limit, or another session of the database has its row locked, as after ctx.complete.",
            f"worker silent, {rest}",
            follows if until > job.now else f"It {then} by itself, once its row is not locked.",
            until,
        )
    return Explanation("", f"It {runs}.", f"on {worker}")


def _waiting(job: JobFacts) -> Explanation | None:
    """The gates of promotion, and of a start that has a latest time."""
    due = job.next_run_at or job.now
    if job.held:
        return _for_jobs(job)
    if job.waits and job.status == "RETRYING" and job.waits_for is not None:
        return _suspended(job, due)
    if job.waits and due > job.now:
        rest, at = span(due - job.now), clock(due, job.now)
        if job.status != "RETRYING":
            return Explanation("delayed", f"It is delayed until {at}.", f"runs in {rest}", "", due)
        if job.snoozed is not None:
            reason = f": {cut(job.snoozed)}" if job.snoozed else ""
            sentence = f"Its handler has snoozed it until {at}{reason}"
            return Explanation("between_attempts", ended(sentence), f"snoozed for {rest}{reason}", "", due)
        error = f": {cut(job.last_error)}" if job.last_error else ""
        last = f"Attempt {job.attempts} ended" if job.attempts else "No attempt has counted yet"
        sentence = f"{last}, and the next one is due at {at}{error}"
        return Explanation("between_attempts", ended(sentence), f"runs in {rest}{error}", "", due)
    if job.waits and not job.is_row_locked:
        return Explanation("due", "It is due. A server makes it ready within a second.", "due", "", job.now)
    if not job.is_ready and job.queued and not job.is_row_locked:
        by = "" if job.start_by is None else f" {clock(job.start_by, job.now)}"
        sentence = f"It had to start by{by}, and has not. It is canceled within seconds."
        return Explanation("too_late", sentence, "too late to start")
    return None


def _locked(job: JobFacts) -> Explanation | None:
    """A claim skips a row that another session has locked."""
    if not job.is_row_locked:
        return None
    who, remedy = _holder(job)
    return Explanation(
        "locked",
        f"{who[0].upper()}{who[1:]} has its row locked. Until that ends, the job does not start, and a "
        "cancel or a new priority may be refused.",
        f"locked by {who}",
        remedy,
    )


def _holder(job: JobFacts) -> tuple[str, str]:
    """Who has locked the row, and how to end it."""
    facts = {
        "role": cut(job.holder_user, 60),
        "application": cut(job.holder_application, 60),
        "since": clock(job.holder_since, job.now) if job.holder_since is not None else "",
    }
    known = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    about = f" ({known})" if known else ""
    if job.holder_prepared:
        name = repr(cut(job.holder_prepared, 60))
        return f"the prepared transaction {name}{about}", "Commit it, or roll it back."
    return (
        f"the transaction of session {job.holder_pid}{about}",
        f"It goes on when that transaction ends. To end it: SELECT pg_terminate_backend({job.holder_pid});",
    )


def _for_jobs(job: JobFacts) -> Explanation:
    if not job.parents_left:
        sentence = "The jobs that it waited for have ended. A server decides within seconds whether it runs."
        return Explanation("waits_for_jobs", sentence, "waits for other jobs", "", job.now)
    named = [f"{cut(name, 60)} ({status})" for _, name, status in job.parents]
    more = [f"{job.parents_left - len(named):,} more"] if 0 < len(named) < job.parents_left else []
    which = f": {', '.join(named + more)}" if named else ""
    jobs = plural(job.parents_left, "job")
    first = f"pulse jobs explain {job.parents[0][0]}" if job.parents else f"pulse jobs explain {job.id}"
    return Explanation(
        "waits_for_jobs",
        f"It waits for {jobs} of its workflow{which}.",
        f"waits for {jobs}" + (f": {', '.join(named[:1])}" if len(named) == job.parents_left == 1 else ""),
        f"It runs once they have ended. Why they have not: {first}",
    )


def _suspended(job: JobFacts, due: datetime) -> Explanation:
    rest, has_end = span(due - job.now), due < _WITHOUT_END
    if not job.waits_for:
        return Explanation(
            "sleeping", f"Its handler sleeps until {clock(due, job.now)}.", f"sleeps for {rest}", "", due
        )
    names = job.waits_for.split("\n")
    words = " or ".join(cut(name, 60) for name in names)
    end = f" It goes on without it at {clock(due, job.now)}." if has_end else ""
    return Explanation(
        "waits_for_signal",
        f"Its handler waits for the signal {words}.{end}",
        f"waits for {words}" + (f", {rest} at the most" if has_end else ""),
        f"Send it: pulse jobs signal {job.id} {shlex.quote(names[0])}",
        due if has_end else None,
    )
