"""Describes a violation: what happened to the job, schedule or pause, ordered by time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from faults.changes import BEAT, JobState, ScheduleChange
from faults.evidence import Evidence, Step
from faults.history import Event
from faults.violations import Violation

_DATABASE = "database"
_MOST_FAULTS = 12
_MOST_CHANGES = 8  # of a schedule or a pause, which may have hundreds
_NAME = re.compile(r"[\w.-]+")
_LEFT_OUT = frozenset({"op", "job_id", "topic", "worker", "schedule_id", "ids"})


class Line(NamedTuple):
    """A row of the table. `t` is in nanoseconds of the history."""

    t: int
    who: str
    what: str
    facts: str
    is_violation: bool = False


def describe(evidence: Evidence, violation: Violation) -> str:
    """Return the violation as a sentence and a table of events."""
    story = _Story(evidence, violation)
    head = [violation.what]
    if violation.job_id and (life := evidence.lives.get(violation.job_id)):
        first = life[0].change
        head.append(f"job {violation.job_id}, topic {first.topic}, key {first.key or '–'}")
    elif violation.schedule_id:
        head.append(f"schedule {violation.schedule_id}")
    return "\n".join([*(f"  {line}" for line in head), *_table(story.lines(), story.origin)])


class _Story:
    def __init__(self, evidence: Evidence, violation: Violation) -> None:
        self._evidence = evidence
        self._violation = violation
        self.origin = evidence.events[0].t if evidence.events else 0
        self._violated_at = None if violation.at is None else evidence.clock.about(violation.at)

    def lines(self) -> list[Line]:
        violation = self._violation
        lines = [*self._events(), *self._life(), *self._waits(), *self._schedule(), *self._switch()]
        names = {line.who for line in lines} | self._workers(violation.job_id)
        lines += self._faults(lines, names)
        return sorted(lines)

    def _events(self) -> Iterator[Line]:
        """The events of clients and workers about the job, or about the schedule if there is none."""
        violation = self._violation
        ids = {violation.job_id, *violation.others}
        submits = [submit for job_id in ids if job_id for submit in self._evidence.submits_of.get(job_id, ())]
        ops = {submit.facts["op"] for submit in submits}
        ops |= {event.facts.get("op") for event in self._evidence.events if event.facts.get("job_id") in ids}
        for event in self._evidence.events:
            facts = event.facts
            if violation.job_id:
                is_ours = facts.get("job_id") in ids or facts.get("op", "") in ops
            else:
                is_ours = (
                    violation.schedule_id is not None and facts.get("schedule_id") == violation.schedule_id
                )
            if is_ours:
                is_violation = event.what == "started" and violation.seq is None and self._is_at(event)
                yield Line(event.t, event.who, event.what, _say(facts), is_violation)

    def _is_at(self, event: Event) -> bool:
        clock, at = self._evidence.clock, self._violation.at
        return at is not None and at in (clock.earliest(event.t), clock.latest(event.t))

    def _life(self) -> Iterator[Line]:
        """The changes of the job. Consecutive heartbeats are one line, with the last lease."""
        for other in self._violation.others:
            for step in self._evidence.lives[other]:
                yield self._line(step, step.verb, False)
        beats: list[Step] = []
        for step in self._evidence.lives.get(self._violation.job_id or "", ()):
            is_violation = step.change.seq == self._violation.seq
            if step.verb == BEAT and not is_violation:
                beats.append(step)
                continue
            yield from self._beats(beats)
            beats = []
            yield self._line(step, step.verb, is_violation)
        yield from self._beats(beats)

    def _waits(self) -> Iterator[Line]:
        for wait in self._evidence.audit.late_waits:
            if wait.job_id == self._violation.job_id:
                facts = f"attempt {wait.attempt}"
                yield Line(self._evidence.clock.about(wait.at), _DATABASE, "wait ended", facts)

    def _beats(self, beats: list[Step]) -> Iterator[Line]:
        if beats:
            yield self._line(beats[-1], BEAT if len(beats) == 1 else f"{BEAT}, {len(beats)}th", False)

    def _line(self, step: Step, what: str, is_violation: bool) -> Line:
        change = step.change
        outcome = f" ({change.outcome})" if change.outcome else ""
        whose = f", job {change.job_id}" if self._violation.others else ""
        facts = self._state(change.new) + outcome + whose
        return Line(self._evidence.clock.about(change.at), _DATABASE, what, facts, is_violation)

    def _state(self, state: JobState | None) -> str:
        if state is None:
            return "gone"
        text = f"{state.status}, attempt {state.attempts} of {state.max_attempts}, run {state.run}"
        if state.locked_by is not None:
            text += f", held by {state.locked_by}"
        if state.lease_until is not None:
            text += f" until {self._relative(self._evidence.clock.about(state.lease_until))}"
        if state.status == "RUNNING" and not state.delivered:
            text += ", not confirmed"
        return text + (", ready" if state.ready else "")

    def _schedule(self) -> Iterator[Line]:
        changes = [
            change
            for change in self._evidence.audit.schedules
            if change.schedule_id == self._violation.schedule_id
        ]
        for change in self._near(changes):
            is_violation = change.at == self._violation.at
            moved = f"{self._cursor(change.old_cursor)} → {self._cursor(change.cursor)}"
            paused = ", paused" if change.paused else ""
            facts = f"{moved}, {_timetable(change)}, catch_up {change.catch_up}{paused}"
            what = "made" if change.old_cursor is None else "edit" if change.is_edit else "step"
            yield Line(self._evidence.clock.about(change.at), _DATABASE, what, facts, is_violation)

    def _cursor(self, cursor: int | None) -> str:
        return "–" if cursor is None else self._relative(self._evidence.clock.about(cursor))

    def _switch(self) -> Iterator[Line]:
        topic = self._violation.switch
        if topic is None:
            return
        turns = [change for change in self._evidence.audit.switches if change.topic == topic]
        name = topic or "everything"
        for turn in self._near(turns):
            what = "paused" if turn.paused else "resumed"
            yield Line(self._evidence.clock.about(turn.at), _DATABASE, what, name)
        turns = [
            event
            for event in self._evidence.events
            if event.what.startswith(("pause", "resume")) and event.facts.get("topic") == topic
        ]
        center = self._violated_at or 0
        for event in sorted(turns, key=lambda event: abs(event.t - center))[:_MOST_CHANGES]:
            yield Line(event.t, event.who, event.what, name)

    def _near(self, changes: list[Any]) -> list[Any]:
        """The changes closest to the violation, in their order."""
        at = self._violation.at
        if at is None:
            return changes[-_MOST_CHANGES:]
        closest = sorted(changes, key=lambda change: abs(change.at - at))[:_MOST_CHANGES]
        return sorted(closest, key=lambda change: change.seq)

    def _workers(self, job_id: str | None) -> set[str]:
        life = self._evidence.lives.get(job_id or "", ())
        return {step.change.new.locked_by for step in life if step.change.new and step.change.new.locked_by}

    def _faults(self, lines: list[Line], names: set[str]) -> list[Line]:
        """The faults of the workers that took part, and of servers, links and the database."""
        if not lines:
            return []
        begin, end = min(line.t for line in lines), max(line.t for line in lines)
        workers = {run.who for runs in self._evidence.executions.values() for run in runs}
        strangers = workers - names
        faults = [
            event
            for event in self._evidence.events
            if event.what in ("fault", "healed")
            and begin <= event.t <= end
            and strangers.isdisjoint(_NAME.findall(str(event.facts["target"])))
        ]
        center = self._violated_at or end
        closest = sorted(faults, key=lambda event: abs(event.t - center))[:_MOST_FAULTS]
        return [Line(event.t, "nemesis", event.what, _say_fault(event.facts)) for event in closest]

    def _relative(self, t: int) -> str:
        return f"{(t - self.origin) / 1e9:+.6f}"


def _timetable(change: ScheduleChange) -> str:
    if change.kind == "cron":
        return f"{change.cron_expr} {change.time_zone}"
    return f"every {(change.interval_ms or 0) / 1000:g} s" if change.kind == "interval" else "once"


def _say(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items() if name not in _LEFT_OUT)


def _say_fault(facts: dict[str, Any]) -> str:
    rest = _say({name: value for name, value in facts.items() if name not in ("kind", "target")})
    return f"{facts['kind']} {facts['target']}" + (f", {rest}" if rest else "")


def _table(lines: list[Line], origin: int) -> Iterator[str]:
    widths = [max((len(cell) for cell in column), default=0) for column in zip(*_cells(lines), strict=False)]
    for line, cells in zip(lines, _cells(lines), strict=True):
        moment = f"{(line.t - origin) / 1e9:+12.6f}"
        padded = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        yield f"  {'>>' if line.is_violation else '  '} {moment}  {padded}  {line.facts}".rstrip()


def _cells(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line.who, line.what) for line in lines]
