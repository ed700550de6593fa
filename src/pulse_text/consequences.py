"""Questions before a change that deletes or stops jobs, each with a count.

Each question is a generator. It yields calls of the SDK, receives their answers, and returns its text,
or None if the change does no harm. So the blocking client of the CLI and the asynchronous one of the
dashboard ask the same.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from pulse_text import printable
from pulse_text.times import format_exact

Question: TypeAlias = Generator[tuple[str, dict[str, Any]], Any, str | None]
"""Yields the name of a method of the SDK, and its arguments."""

_STATUSES = {
    "keep_completed": "COMPLETED",
    "keep_canceled": "CANCELED",
    "keep_dead_lettered": "DEAD_LETTERED",
}
# Entries that bound how many jobs run or start.
_COUNTED = frozenset({"running", "rate", "pool", "per_lane"})
_MOST_TOPICS = 1000  # of a pool, and in one call
_MOST_LANES = 1000
# A schedule that fires so often in a day, and so many times as often as before.
_OFTEN_A_DAY = 24
_MORE_OFTEN = 10


def stop_of_worker(worker_id: str) -> Question:
    """What a worker holds that is to stop."""
    workers = yield "workers", {}
    held = max((worker.held_count for worker in workers if worker.worker_id == worker_id), default=0)
    jobs = "1 job" if held == 1 else f"{held:,} jobs"
    return (
        f"Stop {printable.one_line(worker_id)}? It holds {jobs}: those that run finish within its drain "
        "timeout, the others go to other workers. Its process exits."
    )


def shorter_retention(topic: str, changes: Mapping[str, Any]) -> Question:
    """Whether finished jobs would be deleted. `changes` has entries of the settings, or "default"."""
    shortened = [name for name in _STATUSES if changes.get(name) is not None]
    if not shortened:
        return None
    found = yield "all_topic_settings", {"names": [topic]}
    own = found.of(topic)
    at_risk: list[str] = []
    for name in shortened:
        before = own.before.get(name, own.in_force.get(name))
        after = found.server.get(name) if changes[name] == "default" else changes[name]
        if isinstance(after, timedelta) and (not isinstance(before, timedelta) or after < before):
            at_risk += yield from _finished_before(topic, _STATUSES[name], after)
    if not at_risk:
        return None
    return (
        f"Shorten the retention of {printable.one_line(topic)}? This deletes {' and '.join(at_risk)} for "
        "good, after the server's grace time."
    )


def _finished_before(
    topic: str, status: str, kept: timedelta
) -> Generator[tuple[str, dict[str, Any]], Any, list[str]]:
    """Return the jobs that may have been finished for longer than this, in words; empty if there are none."""
    now = (yield "count_jobs", {"topic": topic, "status": "CANCELED"}).counted_at
    if now is None:
        return []
    which = {"topic": topic, "status": status, "before": now - kept}
    counted = yield "count_jobs", which
    if counted.count:
        return [f"{'at least' if counted.at_least else 'up to'} {_jobs(counted.count, status)}"]
    if counted.at_least and (yield "list_jobs", {**which, "limit": 1}).jobs:
        return [f"{status} jobs"]
    return []


def tighter_limits(topic: str, changes: Mapping[str, Any]) -> Question:
    """Whether fewer jobs could run than run now. `changes` has entries of the settings, or "default"."""
    if not _COUNTED & changes.keys():
        return None
    own = (yield "all_topic_settings", {"names": [topic]}).of(topic)
    after = {name: _after(own, name, changes) for name in _COUNTED}
    pool, others = after["pool"], []
    if pool is not None:
        # The limits of a pool hold for all its topics: those of the others are needed too.
        everything = yield "all_topic_settings", {}
        others = [each for each in everything if each.topic != topic and each.in_force.get("pool") == pool]
    names = [topic, *(each.topic for each in others)][:_MOST_TOPICS]
    joins = own.in_force.get("pool") != pool
    where = f"the pool {printable.one_line(pool)}" if others else printable.one_line(topic)
    harm: list[str] = []

    limits = [_after(each, "running", {}) for each in others] + [after["running"]]
    limit = min((each for each in limits if each is not None), default=None)
    running = 0 if limit is None else (yield from _count_running(names))
    if limit is not None and limit < running and (joins or _is_below(limit, own.in_force.get("running"))):
        harm.append(
            f"{_run(running)} on {where} now. With a limit of {limit:,} they go on, and no other starts "
            f"before {running - limit + 1:,} have ended."
        )
    rates = [each for each in [*(_after(each, "rate", {}) for each in others), after["rate"]] if each]
    rate = min(rates, key=_per_second, default=None)
    started = 0
    if rate is not None:
        topics = (yield "list_topics", {"names": names, "limit": _MOST_TOPICS}).topics
        started = sum(found.last_minute.completed + found.last_minute.failed for found in topics)
    if rate is not None and _per_second(rate) * 60 < started:
        before = own.in_force.get("rate")
        if joins or before is None or _per_second(rate) < _per_second(before):
            harm.append(
                f"{_jobs(started)} ended on {where} in the last minute. With a rate of {rate} fewer start, "
                "and the others wait."
            )
    if after["per_lane"] is not None and "turns" in own.in_force:  # every limit of lanes implies it
        harm += yield from _fuller_lane(topic, after["per_lane"], own.in_force.get("per_lane"))
    return " ".join(harm) or None


def _count_running(topics: list[str]) -> Generator[tuple[str, dict[str, Any]], Any, int]:
    # Not from the list of topics: its counts may be seconds old.
    running: int = (yield "count_jobs", {"topics": topics, "status": "RUNNING"}).count
    return running


def _after(own: Any, name: str, changes: Mapping[str, Any]) -> Any:
    """Return the entry of a topic after the changes; None: not limited."""
    given = changes.get(name)
    if given is not None and given != "default":
        return given
    by_operator = None if given == "default" else own.operator.get(name)
    return own.declared.get(name) if by_operator is None else by_operator


def _fuller_lane(
    topic: str, limit: int, before: int | None
) -> Generator[tuple[str, dict[str, Any]], Any, list[str]]:
    lanes = yield "lanes", {"topic": topic, "by": "share", "limit": 1}
    fullest = next((lane for lane in lanes if lane.limit is None), None)
    if fullest is None or fullest.running <= limit or not _is_below(limit, before):
        return []
    return [
        f"{_run(fullest.running)} on the lane {printable.one_line(fullest.lane)!r} now. With {limit:,} per "
        "lane they go on, and no other starts before."
    ]


def lower_lane_limit(topic: str, lane: str, limit: int | None) -> Question:
    """Whether fewer jobs of one lane could run than run now. None: the limit of all lanes."""
    lanes = yield "lanes", {"topic": topic, "by": "share", "limit": _MOST_LANES}
    own = next((known for known in lanes if known.lane == lane), None)
    if own is None:
        return None
    if limit is None:
        found = yield "limits", {"names": [topic]}
        limit = found[0].in_force.get("per_lane") if found else None
    if limit is None or own.running <= limit or (own.limit is not None and own.limit <= limit):
        return None
    return (
        f"{_run(own.running)} on the lane {printable.one_line(lane)!r} now. With a limit of {limit:,} they "
        f"go on, and no other starts before {own.running - limit + 1:,} have ended."
    )


def hold(topic: str, span: timedelta) -> Question:
    """Whether a hold stops a topic at work: no further job starts after those that run now."""
    if not span:
        return None
    known = {limits.topic: limits.in_force.get("pool") for limits in (yield "limits", {})}
    pool = known.get(topic)
    names = [name for name in known if name == topic or (pool is not None and known[name] == pool)]
    if not names:
        return None  # the topic has no limits: the server refuses the hold
    running = yield from _count_running(names[:_MOST_TOPICS])
    if not running:
        return None
    topics = (yield "list_topics", {"names": names[:_MOST_TOPICS], "limit": _MOST_TOPICS}).topics
    ready = sum(found.ready for found in topics)
    where = printable.one_line(topic) if len(names) == 1 else f"the pool {printable.one_line(pool or '')}"
    return f"Hold {where} for {format_exact(span)}? {_wait(ready, running)} until the hold ends."


def more_fires(schedule: Any, spec: Any) -> Question:
    """Whether a schedule that fires rarely would fire often. `spec` is its new timetable; None: it stays."""
    yield from ()
    before, after = (getattr(each, "fires_a_day", 1) for each in (schedule.spec, spec))
    if after < _OFTEN_A_DAY or after < _MORE_OFTEN * before:
        return None
    name = printable.one_line(schedule.name or schedule.id)
    return f"{name} would fire {_times(after)} a day instead of {_times(before)}."


def _times(count: float) -> str:
    if count < 1:
        return "less than once"
    return "once" if count < 2 else f"{count:,.0f} times"


def pause_everything() -> Question:
    """How many jobs a pause of everything concerns."""
    return pause_text((yield "list_topics", {"limit": 1}).sum)


def pause_text(everything: Any) -> str:
    """Return the question before a pause of everything. `everything` is the sum of all topics."""
    return f"Pause all topics? {_wait(everything.ready, everything.running)} until you resume."


def _wait(ready: int, running: int) -> str:
    finish = "1 running job finishes." if running == 1 else f"{running:,} running jobs finish."
    return f"{finish} {_jobs(ready, 'ready')}, and all that come, wait"


def _is_below(limit: int, before: int | None) -> bool:
    """Whether a limit is lower than the one in force, which may be none."""
    return before is None or limit < before


def _per_second(rate: Any) -> float:
    seconds: float = rate.starts / rate.per.total_seconds()
    return seconds


def _run(running: int) -> str:
    return "1 job runs" if running == 1 else f"{running:,} jobs run"


def _jobs(count: int, kind: str = "") -> str:
    return f"{count:,} {kind}{' ' if kind else ''}{'job' if count == 1 else 'jobs'}"
