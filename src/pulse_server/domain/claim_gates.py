"""The gates of the claim: what keeps a ready job from starting, in a sentence each.

tests/postgres/test_explained_gates.py compares them with the claim.
"""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta

from pulse_server.domain.job_facts import Ahead, Explanation, JobFacts, TopicWorkers
from pulse_server.domain.phrases import clock, come, cut, ended, plural, span

# A ready job with a free worker starts within milliseconds. Past this, something else is wrong.
OVERDUE = timedelta(seconds=10)


def topic_gate(job: JobFacts, workers: TopicWorkers) -> Explanation | None:
    """The pauses, and a topic without workers that take jobs."""
    if job.all_paused:
        return _paused(
            "All dispatch", "everything", job.all_paused_at, job.all_paused_by, job.all_reason, job
        )
    if job.paused_at is not None:
        return _paused("Its topic", "topic", job.paused_at, job.paused_by, job.reason, job)
    if not workers.count and workers.quiet:
        return Explanation(
            "workers_quiet",
            f"No worker takes jobs of its topic.{_quieted(workers, job.now)}",
            f"its {plural(len(workers.quiet), 'worker')} quiet",
            _to_resume(workers),
        )
    if not workers.count and not workers.unlisted:
        left = f" The last one left at {clock(workers.left_at, job.now)}." if workers.left_at else ""
        meant = f" Did you mean {workers.similar!r}?" if workers.similar else ""
        return Explanation(
            "no_worker",
            f"No worker that takes {job.topic!r} is connected.{left}{meant}",
            f"no worker: did you mean {workers.similar}?" if workers.similar else "no worker for its topic",
            "Start a worker that has a handler for the topic: pulse worker MODULE:APP",
        )
    return None


def _quieted(workers: TopicWorkers, now: datetime) -> str:
    """A sentence about the workers that take no jobs by order of an operator: how many, who and why."""
    if not workers.quiet:
        return ""
    name, state = workers.quiet[0]
    by = f" by {cut(state.set_by, 60)}" if state.set_by else ""
    why = f": {cut(state.reason)}" if state.reason else ""
    others = f" {plural(len(workers.quiet) - 1, 'other')} too." if len(workers.quiet) > 1 else ""
    return ended(f" {cut(name, 60)} has been {state.name} since {clock(state.set_at, now)}{by}{why}") + others


def _to_resume(workers: TopicWorkers) -> str:
    return f"Let it take jobs again: pulse workers resume {shlex.quote(workers.quiet[0][0])}"


def _paused(what: str, brief: str, at: datetime | None, by: str, reason: str, job: JobFacts) -> Explanation:
    paused = "is paused" if at is None else f"has been paused since {clock(at, job.now)}"
    who = f" by {cut(by, 60)}" if by else ""
    why = f": {cut(reason)}" if reason else ""
    of = "" if brief == "everything" else f" --topic {job.topic}"
    code = "dispatch_paused" if brief == "everything" else "topic_paused"
    return Explanation(
        code,
        ended(f"{what} {paused}{who}{why}"),
        f"{brief} paused{who}",
        f"Resume it: pulse dispatch resume{of}",
    )


def lane_gate(job: JobFacts) -> Explanation | None:
    if job.lane_free is None:
        return None
    lane = cut(job.lane, 60)
    if job.ordered and job.first_in_order not in ("", job.id):
        return Explanation(
            "ordered",
            f"The jobs of its lane {lane} run in order, and job {job.first_in_order} comes first.",
            f"in order, after {job.first_in_order}",
            f"It starts once that job has ended. Why it has not: pulse jobs explain {job.first_in_order}",
        )
    if job.lane_starts is not None and (job.lane_started or 0) >= job.lane_starts and job.lane_rate_free_at:
        rate = f"{job.lane_starts:,} in {span(job.lane_period or timedelta())}"
        return Explanation(
            "lane_rate",
            f"Its lane {lane} has started as many jobs as its rate allows: {rate}.{_behind(job)}",
            f"rate of its lane: {rate}",
            f"Raise the rate: pulse topics set {job.topic} --lane-rate RATE",
            _by_rate(job.lane_rate_free_at, job.lane_starts, job.lane_period, _before(job)),
        )
    if job.lane_free <= 0:
        if job.lane_limit is not None and job.lane_running < job.lane_limit:
            return Explanation(
                "lane_limit",
                f"A job of its lane {lane} has just ended. The next claim counts its slot as free."
                f"{_behind(job)}",
                "its lane has just got a free slot",
            )
        of = f"{job.lane_running:,} of {job.lane_limit:,}" if job.lane_limit is not None else "all"
        return Explanation(
            "lane_limit",
            f"Its lane {lane} is at its limit: {of} jobs run.{_behind(job)}",
            f"limit of its lane: {of} run",
            "It starts when one of them ends. Raise the limit: "
            f"pulse lanes set {job.topic} {shlex.quote(job.lane)} --limit N",
        )
    return None


def limit_gate(job: JobFacts, ahead: Ahead | None = None) -> Explanation | None:
    """`ahead` is None if it was not counted."""
    kind = "pool" if job.pool else "topic"
    of = f"the pool {job.pool}" if job.pool else "its topic"
    if job.held_until is not None and job.held_until > job.now:
        by = "an operator" if job.held_by_operator else "a handler"
        return Explanation(
            "topic_held",
            f"Its topic is held until {clock(job.held_until, job.now)}, by {by}.",
            f"topic held for {span(job.held_until - job.now)}",
            f"End the hold: pulse topics unhold {job.topic}",
            job.held_until,
        )
    use = f": {', '.join(job.pool_use)}" if job.pool_use else ""
    if job.limit is not None and (job.running or 0) >= job.limit:
        return Explanation(
            f"{kind}_limit",
            f"{job.running:,} of {job.limit:,} jobs of {of} run, which is the limit{use}."
            f"{_behind(job, ahead)}",
            f"limit of {of}: {job.running:,} of {job.limit:,} run",
            f"It starts when one of them ends. Raise the limit: pulse topics set {job.topic} --running N",
        )
    if job.rate_free_at is not None:
        rate = f"{job.starts:,} in {span(job.period or timedelta())}"
        before, expected_at = _before(job, ahead), None
        if not (job.laned or job.pool):
            expected_at = _by_rate(job.rate_free_at, job.starts, job.period, before)
        elif not (before.jobs or job.turns_before):
            expected_at = job.rate_free_at  # later, it depends on the jobs of other lanes and topics
        return Explanation(
            f"{kind}_rate",
            f"As many jobs of {of} have started as the rate allows, {rate}{use}.{_behind(job, ahead)}",
            f"rate of {of}: {rate}",
            f"Raise the rate: pulse topics set {job.topic} --rate RATE",
            expected_at,
        )
    return None


def worker_gate(job: JobFacts, workers: TopicWorkers, ahead: Ahead | None) -> Explanation:
    held = ", ".join(f"{jobs:,} of {topic}" for topic, jobs in workers.running[:3])
    running = (f" They run {held}." if held else "") + hindered(workers, job.now)
    remedy = "Add workers or concurrency, or raise its priority: "
    if not workers.count:
        return unlisted(job, workers)
    if workers.free > 0:
        return _free(job, workers)
    if job.ahead_in_lane:
        return Explanation(
            "outranked",
            f"{come(job.ahead_in_lane, 'job')} first in its lane {cut(job.lane, 60)}, and all workers of its "
            f"topic are full.{running}",
            f"behind {plural(job.ahead_in_lane, 'job')} of its lane",
            f"{remedy}pulse jobs prioritize {job.id} --priority N",
        )
    if job.laned and job.turns_before:
        turns = plural(job.turns_before, "turn")
        return Explanation(
            "lane_turn",
            f"{come(job.turns_before, 'turn')} before its lane's, and all workers of its topic are full."
            f"{running}",
            f"its lane's turn comes after {turns}",
            f"Give the lane more weight: pulse lanes set {job.topic} {shlex.quote(job.lane)} --weight N",
        )
    if ahead is not None and ahead.jobs:
        more = "more than " if ahead.more else ""
        first = f"{more}{come(ahead.jobs, 'job')} first"
        which = ", ".join(f"{jobs:,} of {topic}" for topic, jobs in ahead.topics[:3])
        return Explanation(
            "outranked",
            f"{first[0].upper()}{first[1:]}, by priority or age: {which}. All workers of its topic are full."
            f"{running}",
            f"behind {more}{plural(ahead.jobs, 'job')}",
            f"{remedy}pulse jobs prioritize {job.id} --priority N",
        )
    if not workers.capacity:
        why = hindered(workers, job.now) or " They have no slots, as while they stop."
        return Explanation(
            "workers_full",
            f"The workers of its topic take no new jobs.{why}",
            "workers take no jobs",
            _to_resume(workers) if workers.quiet else "Start another worker: pulse worker MODULE:APP",
        )
    free_up = _to_resume(workers) if workers.quiet else "Add workers or concurrency."
    return Explanation(
        "workers_full",
        f"All workers of its topic are full ({plural(workers.count, 'worker')}, "
        f"{plural(workers.capacity, 'slot')}).{running}",
        f"workers full: {workers.capacity - workers.free:,} of {workers.capacity:,}"
        + (f", {workers.frozen:,} may be frozen" if workers.frozen else ""),
        "Restart its workers if they hang: their logs show it."
        if workers.frozen
        else f"It starts when one of these jobs ends. {free_up}",
    )


def hindered(workers: TopicWorkers, now: datetime) -> str:
    """Sentences about workers that get fewer jobs than they have slots, or none."""
    said = [
        (
            workers.frozen,
            "may be frozen: a lease expired during the connection. Such a worker gets one job at a time, "
            "until it reports one.",
        ),
        (workers.unread, "did not read the last jobs yet. More are sent once these are read."),
        (workers.closing, f"{'is' if workers.closing == 1 else 'are'} about to leave."),
    ]
    sentences = "".join(f" {plural(count, 'worker')} {rest}" for count, rest in said if count)
    return sentences + _quieted(workers, now)


def unlisted(job: JobFacts, workers: TopicWorkers) -> Explanation:
    """No known worker takes the topic, and the topics of some are not all known."""
    takes = "takes" if workers.unlisted == 1 else "take"
    return Explanation(
        "",
        f"It is not known whether a worker takes {job.topic!r}: {plural(workers.unlisted, 'worker')} of "
        f"other servers {takes} more topics than are listed. Nothing else stops it.",
        "its workers are not known",
        "Ask the server of its workers, which knows all their topics. The servers: pulse servers",
    )


def _free(job: JobFacts, workers: TopicWorkers) -> Explanation:
    late = job.now - (job.next_run_at or job.now)
    slots = f"its workers have {plural(workers.free, 'free slot')}"
    if late <= OVERDUE:
        return Explanation("", f"Nothing stops it: {slots}.", "starts now", "", job.now)
    if job.running or job.started or job.lane_running:
        return Explanation(
            "overdue",
            f"Nothing stops it now: {slots}. It has been due for {span(late)}. Limits may have delayed it "
            "until now. If not, another session has its row locked, or the servers cannot claim.",
            f"due for {span(late)}",
            "If it stays so, look for dispatch_failing and locks in the log of pulsed.",
        )
    return Explanation(
        "overdue",
        f"Nothing stops it: {slots}. But no server has claimed it for {span(late)}. Another session may have "
        "its row locked, or the servers cannot claim.",
        f"not claimed for {span(late)}",
        "Look for dispatch_failing and locks in the log of pulsed. If its workers connected just now, wait.",
    )


def _before(job: JobFacts, ahead: Ahead | None = None) -> Ahead:
    """The jobs that come first in its lane, or by `ahead`."""
    if job.laned:
        return Ahead(job.ahead_in_lane, job.has_more_ahead_in_lane)
    return ahead or Ahead(0, False)


def _by_rate(
    free_at: datetime, starts: int | None, period: timedelta | None, before: Ahead
) -> datetime | None:
    """About when the rate lets a job start behind the others. None: they were not all counted."""
    if before.more:
        return None
    return free_at + (period or timedelta()) * (before.jobs // (starts or 1))


def _behind(job: JobFacts, ahead: Ahead | None = None) -> str:
    before = _before(job, ahead)
    if before.jobs:
        jobs = f"{'more than ' if before.more else ''}{come(before.jobs, 'job')} first"
        return f" {jobs[0].upper()}{jobs[1:]}{' in its lane' if job.laned else ''}."
    return f" {come(job.turns_before, 'turn')} before its lane's." if job.turns_before else ""
