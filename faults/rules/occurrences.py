"""I6: each occurrence of a schedule makes exactly one job.

Every occurrence that the cursor passes must have been fired, except those that the schedule's catch-up rule
allows it to miss. The server plans a step by a time between the occurrence and the start of its statement: a
cursor violates the rule only if no such time explains its position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from faults.changes import HAND_OVER, INSERT, ScheduleChange
from faults.evidence import Evidence
from faults.violations import Violation
from pulse_server.schedules.rules import (
    MISSED_AFTER,
    MOST_REPLAYED,
    Cron,
    Every,
    Once,
    Timetable,
    fire_id,
    next_run,
    upcoming,
)

FIRED = "an occurrence that the cursor passes has made a job"
FIRED_ONCE = "an occurrence makes one job"
NOT_EARLY = "an occurrence is fired when it is due"
NOT_WHILE_PAUSED = "a paused schedule does not fire"
NONE_SKIPPED = "the cursor goes to the occurrence that follows"
UNBROKEN = "each change of a schedule begins where the one before it ended"
OF_AN_OCCURRENCE = "a schedule's job belongs to an occurrence, or was fired by hand"
DELETED_BY_REQUEST = "a schedule stays unless a client deletes it or it has ended"
GOES_ON = "a schedule goes on firing"

# A healthy scheduler looks once a second.
_STUCK_AFTER = 30_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def check_occurrences(evidence: Evidence) -> Iterator[Violation]:
    schedules: defaultdict[str, list[ScheduleChange]] = defaultdict(list)
    for change in evidence.audit.schedules:
        schedules[change.schedule_id].append(change)
    fired: dict[str, int] = {}  # the transaction of each step, by the job that it makes
    for changes in schedules.values():
        cursor: int | None = None
        for change in changes:
            if change.old_cursor != cursor:
                what = (
                    f"It stood at {_say(cursor)}, and the next change found it at {_say(change.old_cursor)}."
                )
                yield _violation(UNBROKEN, what, change)
            cursor = change.cursor
            if change.old_cursor is not None and not change.is_edit:
                if change.queued_for is not None and change.cursor == change.old_cursor:
                    # It was passed before, and has waited for the end of a job.
                    fired[fire_id(change.schedule_id, _moment(change.queued_for))] = change.txid
                else:
                    fired.setdefault(fire_id(change.schedule_id, _moment(change.old_cursor)), change.txid)
                yield from _check_step(evidence, change)
        yield from _check_progress(evidence, changes[-1])
    yield from _check_jobs(evidence, fired)


def _check_step(evidence: Evidence, step: ScheduleChange) -> Iterator[Violation]:
    """A cursor moved, or a schedule was removed, without an edit."""
    assert step.old_cursor is not None
    job_id = fire_id(step.schedule_id, _moment(step.old_cursor))
    inserts = [verb for verb, change in evidence.lives.get(job_id, ()) if verb in (INSERT, HAND_OVER)]
    if step.cursor is None:
        if not inserts and not _was_deleted(evidence, step.schedule_id):
            what = f"It is gone, with its cursor at {_say(step.old_cursor)}, and no delete was requested."
            yield _violation(DELETED_BY_REQUEST, what, step)
        return
    if step.cursor == step.old_cursor:
        return
    if step.old_paused:
        yield _violation(NOT_WHILE_PAUSED, f"It left {_say(step.old_cursor)} while it was paused.", step)
    if step.at < step.old_cursor:
        what = f"The occurrence of {_say(step.old_cursor)} was fired at {_say(step.at)}."
        yield _violation(NOT_EARLY, what, step)
    if not inserts and step.overlap == "allow" and not _may_pass_over(step):
        what = f"The cursor left {_say(step.old_cursor)}, and there is no job for it."
        yield _violation(FIRED, what, step)
    if not _follows(step):
        what = (
            f"From {_say(step.old_cursor)} the cursor went to {_say(step.cursor)} (catch_up {step.catch_up})."
        )
        yield _violation(NONE_SKIPPED, what, step)


def _may_pass_over(step: ScheduleChange) -> bool:
    assert step.old_cursor is not None
    late = timedelta(microseconds=step.statement_at - step.old_cursor)
    return step.catch_up == "skip" and late > MISSED_AFTER


def _follows(step: ScheduleChange) -> bool:
    """Whether the catch-up rule allows the new cursor, for a time that the server may have read."""
    assert step.old_cursor is not None
    assert step.cursor is not None
    timetable, left, reached = _timetable(step), _moment(step.old_cursor), _moment(step.cursor)
    began = _moment(step.statement_at)
    following = next_run(timetable, left, left)
    if following is None or reached == following:
        return reached == following
    # Past others: only past those that were missed by then, and only to one in the timetable.
    last = next_run(timetable, left, began)
    if last is None or not following < reached <= last:
        return False
    if next_run(timetable, left, reached - _MICROSECOND) != reached:
        return False
    if step.catch_up != "all":
        return True
    replayed = takewhile(lambda occurrence: occurrence <= began, upcoming(timetable, reached, MOST_REPLAYED))
    return len(list(replayed)) == MOST_REPLAYED


def _check_jobs(evidence: Evidence, fired: dict[str, int]) -> Iterator[Violation]:
    by_hand = evidence.asked["schedule_fire"]
    for job_id, life in evidence.lives.items():
        schedule_id = life[0].change.schedule_id
        if not schedule_id:
            continue
        inserts = [change for verb, change in life if verb in (INSERT, HAND_OVER)]
        first = life[0].change
        if len(inserts) > 1:
            what = f"Job {job_id} was made {len(inserts)} times."
            yield Violation("I6", FIRED_ONCE, what, job_id, schedule_id, at=first.at, seq=inserts[1].seq)
        if job_id not in by_hand and fired.get(job_id) != first.txid:
            what = f"Job {job_id} was made, but by no step of the schedule's cursor."
            yield Violation("I6", OF_AN_OCCURRENCE, what, job_id, schedule_id, at=first.at, seq=first.seq)


def _check_progress(evidence: Evidence, last: ScheduleChange) -> Iterator[Violation]:
    settled = [event.t for event in evidence.events if event.what == "settled"]
    if not settled or last.cursor is None or last.paused:
        return
    late = evidence.clock.earliest(settled[-1]) - last.cursor
    if late > _STUCK_AFTER:
        what = f"After the healing it had not fired for {late / 1e6:.0f} s, since {_say(last.cursor)}."
        yield _violation(GOES_ON, what, last)


def _was_deleted(evidence: Evidence, schedule_id: str) -> bool:
    return any(
        request.facts["schedule_id"] == schedule_id for request in evidence.requests["schedule_delete"]
    )


def _timetable(change: ScheduleChange) -> Timetable:
    if change.kind == "cron":
        return Cron(str(change.cron_expr), change.time_zone)
    if change.kind == "interval":
        assert change.interval_ms is not None
        return Every(timedelta(milliseconds=change.interval_ms))
    assert change.run_at is not None
    return Once(_moment(change.run_at))


def _moment(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def _say(microseconds: int | None) -> str:
    return "nowhere" if microseconds is None else f"{_moment(microseconds):%H:%M:%S.%f}"


def _violation(rule: str, what: str, change: ScheduleChange) -> Violation:
    return Violation("I6", rule, what, schedule_id=change.schedule_id, at=change.at)
