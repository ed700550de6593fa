"""The gates of the claim: what keeps a ready job from starting, in a sentence each.

The facts that decide it are here as well. tests/postgres/test_explained_gates.py compares them with the
claim.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from pulse_server.dispatch.rules import WorkerState

_LONGEST_TEXT = 200
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def plural(count: int, one: str, many: str | None = None) -> str:
    """The count with its noun: 1 job, 1,200 jobs."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share in percent: 12%; 100% only for all."""
    return f"{100 if share >= 1 else min(99, max(1, round(share * 100)))}%"


def come(count: int, noun: str) -> str:
    """1 job comes, 2 jobs come."""
    return f"{plural(count, noun)} come{'s' if count == 1 else ''}"


def ended(sentence: str) -> str:
    """The sentence with a full stop. A text of a user may have one."""
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


def cut(text: str, most: int = _LONGEST_TEXT) -> str:
    """The first line, or the last of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    line = lines[-1] if lines[0].startswith("Traceback ") else lines[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def clock(moment: datetime, now: datetime) -> str:
    """09:12:30 UTC, with the date if it is another day."""
    moment = moment.astimezone(UTC)
    is_today = moment.date() == now.astimezone(UTC).date()
    return moment.strftime("%H:%M:%S UTC" if is_today else "%Y-%m-%d %H:%M:%S UTC")


def span(length: timedelta) -> str:
    """400ms, 18s, 3m57s, 2h5m: two units at the most."""
    if length < timedelta(seconds=1):
        return f"{max(round(length.total_seconds() * 1000), 0)}ms"
    rest = round(length.total_seconds())
    for (unit, size), (smaller, part) in pairwise(_UNITS):
        if rest >= size:
            more = rest % size // part
            return f"{rest // size}{unit}" + (f"{more}{smaller}" if more else "")
    return f"{rest}s"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job with its topic, lane, workflow and worker; or a topic without unfinished jobs."""

    now: datetime
    """The clock of the database."""
    topic: str
    id: str = ""
    status: str = ""
    queued: bool = False
    waits: bool = False
    """Not due, or not promoted yet."""
    is_ready: bool = False
    held: bool = False
    """It waits for jobs of its workflow."""
    attempts: int = 0
    max_attempts: int = 0
    next_run_at: datetime | None = None
    start_by: datetime | None = None
    started_at: datetime | None = None
    lease_until: datetime | None = None
    finished_at: datetime | None = None
    locked_by: str = ""
    waits_for: str | None = None
    last_error: str = ""
    snoozed: str | None = None
    """Why, if its last run ended with a snooze."""
    lane: str = ""
    # Pauses.
    all_paused: bool = False
    all_paused_at: datetime | None = None
    all_paused_by: str = ""
    all_reason: str = ""
    paused_at: datetime | None = None
    """None: the topic is not paused."""
    paused_by: str = ""
    reason: str = ""
    # Limits of the topic, or of its pool.
    pool: str = ""
    limit: int | None = None
    running: int | None = None
    starts: int | None = None
    period: timedelta | None = None
    started: int | None = None
    rate_free_at: datetime | None = None
    """None: the rate has room."""
    held_until: datetime | None = None
    held_by_operator: bool = False
    pool_use: Sequence[str] = ()
    """"6 of render", most first."""
    # The lane of a ready job.
    laned: bool = False
    turns_before: int | None = None
    lane_limit: int | None = None
    lane_free: int | None = None
    """Its places that a job may take now. None: its topic has no lanes."""
    lane_running: int = 0
    lane_runs: str = ""
    """A running job of the lane."""
    lane_starts: int | None = None
    lane_period: timedelta | None = None
    lane_started: int | None = None
    lane_rate_free_at: datetime | None = None
    ordered: bool = False
    ahead_in_lane: int = 0
    has_more_ahead_in_lane: bool = False
    """There are more than these."""
    first_in_order: str = ""
    """The job that is next in an ordered lane, or runs there."""
    # A running job, and a job of a workflow.
    is_connected: bool = False
    """Its worker is connected to a server."""
    spared_until: datetime | None = None
    parents_left: int = 0
    parents: Sequence[tuple[str, str, str]] = ()
    """The id, name and status of the first unended parents."""

    # The transaction that has locked the row of the job.
    is_row_locked: bool = False
    holder_pid: int | None = None
    holder_user: str = ""
    holder_application: str = ""
    holder_since: datetime | None = None
    """The times and applications of other roles' sessions are visible only with pg_read_all_stats."""
    holder_prepared: str = ""
    """The name of a prepared transaction."""

    def extended_within(self, time: timedelta, lease: timedelta) -> bool:
        """Whether its lease began or was extended so lately."""
        return self.lease_until is not None and self.now - (self.lease_until - lease) < time


@dataclass(frozen=True, slots=True)
class TopicWorkers:
    """The connected workers that take a topic, on all servers."""

    count: int = 0
    capacity: int = 0
    free: int = 0
    """Slots that may take a job of the topic now."""
    running: Sequence[tuple[str, int]] = ()
    """The topics of the jobs that they hold, most first."""
    left_at: datetime | None = None
    """When the last one left this server, if there is none."""
    similar: str = ""
    """A topic with a similar name that has workers, if this one has none."""
    frozen: int = 0
    """Workers whose lease has expired while they were connected: they get one job at a time."""
    unread: int = 0
    """Workers that have not read what was sent to them: they get no more."""
    closing: int = 0
    unlisted: int = 0
    """Workers whose topics are not all known. Counted if no known worker takes this one."""
    quiet: Sequence[tuple[str, WorkerState]] = ()
    """Those that an operator has quieted or stops, which take no jobs and do not count above."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The jobs that the workers of a topic claim first."""

    jobs: int
    more: bool
    """There are more than these."""
    topics: Sequence[tuple[str, int]] = ()
    """Most first."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job does not run, or why a topic starts no jobs."""

    cause: str
    """A stable code. Empty: nothing stops it."""
    sentence: str
    brief: str
    """The sentence in a few words."""
    remedy: str = ""
    expected_at: datetime | None = None
    """About when it goes on, if that is known."""
    job_id: str = ""
    """Empty: the topic as a whole."""


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
