"""The checker accepts random legal lives, and finds each kind of fault in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from faults.changes import CANCEL, CLAIM, CLAIMS, COMPLETE, REAP, JobChange, JobState, verb_of
from faults.checker import check
from faults.disturbances import ALL_SERVERS, AWAY
from faults.evidence import Evidence
from faults.history import Event
from faults.rules.pauses import CONVERGENCE_SECONDS
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.schedules import SECOND, MadeUpSchedule

# ---------------------------------------------------------------- sabotage
# Ways to break a promise in correct evidence. Each takes the evidence and a number: the place.


Thing = TypeVar("Thing")
_LATER_NS = 3600 * 10**9


def drop_a_change(evidence: Evidence, choice: int) -> None:
    changes = evidence.audit.jobs
    del changes[choice % len(changes)]


def double_a_change(evidence: Evidence, choice: int) -> None:
    changes = evidence.audit.jobs
    changes.append(_pick(changes, choice)._replace(seq=changes[-1].seq + 1))


def swap_two_changes(evidence: Evidence, choice: int) -> None:
    changes = evidence.audit.jobs
    first = choice % len(changes)
    second = next(
        (place for place in range(first + 1, len(changes)) if changes[place].job_id == changes[first].job_id),
        None,
    )
    if second is None:
        first, second = 0, 1
    changes[first], changes[second] = changes[second], changes[first]


def lose_a_job(evidence: Evidence, choice: int) -> None:
    """An acknowledged one: no row and no change is left."""
    _forget(
        evidence,
        _pick([event for event in evidence.events if event.what == "submitted"], choice).facts["job_id"],
    )


def store_a_job_twice(evidence: Evidence, choice: int) -> None:
    keyed = [change for change in evidence.audit.jobs if change.key]
    life = _life(evidence, _pick(keyed, choice).job_id)
    evidence.audit.jobs.extend(change._replace(job_id="another", seq=change.seq + 10**6) for change in life)
    evidence.audit.statuses["another"] = "COMPLETED"


def remove_a_row(evidence: Evidence, choice: int) -> None:
    del evidence.audit.statuses[_pick(sorted(evidence.audit.statuses), choice)]


def change_a_row(evidence: Evidence, choice: int) -> None:
    job_id = _pick(sorted(evidence.audit.statuses), choice)
    is_completed = evidence.audit.statuses[job_id] == "COMPLETED"
    evidence.audit.statuses[job_id] = "DEAD_LETTERED" if is_completed else "COMPLETED"


def reap_too_early(evidence: Evidence, choice: int) -> None:
    reap = _pick(_of(evidence, REAP), choice)
    assert reap.old is not None
    assert reap.old.lease_until is not None
    too_early = reap.old.lease_until - 1
    _replace(evidence, reap, at=too_early, statement_at=too_early)


def miscount_an_attempt(evidence: Evidence, choice: int) -> None:
    change = _pick([change for change in evidence.audit.jobs if change.new], choice)
    _replace(evidence, change, new=_state(change)._replace(attempts=_state(change).attempts + 1))


def use_a_run_again(evidence: Evidence, choice: int) -> None:
    """Of the claims that follow another one."""
    claims = [change for change in _of(evidence, CLAIM) if change.old and change.old.run]
    claim = _pick(claims, choice)
    _replace(evidence, claim, new=_state(claim)._replace(run=_state(claim).run - 1))


def change_a_run(evidence: Evidence, choice: int) -> None:
    change = _pick(_of(evidence, COMPLETE), choice)
    _replace(evidence, change, new=_state(change)._replace(run=_state(change).run + 1))


def take_a_report_from_another(evidence: Evidence, choice: int) -> None:
    change = _pick(_of(evidence, COMPLETE), choice)
    _replace(evidence, change, new=_state(change)._replace(finished_by="worker-9"))


def complete_what_never_ran(evidence: Evidence, choice: int) -> None:
    job_id = _pick(_of(evidence, COMPLETE), choice).job_id
    _keep_events(evidence, lambda event: event.facts.get("job_id") != job_id or event.what != "started")


def complete_what_never_ended(evidence: Evidence, choice: int) -> None:
    job_id = _pick(_of(evidence, COMPLETE), choice).job_id
    _keep_events(evidence, lambda event: event.facts.get("job_id") != job_id or event.what != "ended")


def start_after_the_completion(evidence: Evidence, choice: int) -> None:
    ids = {change.job_id for change in _of(evidence, COMPLETE)} & evidence.audit.statuses.keys()
    starts = [e for e in evidence.events if e.what == "started" and e.facts["job_id"] in ids]
    start = _pick(starts, choice)
    evidence.events.append(Event(evidence.events[-1].t + _LATER_NS, start.who, start.what, start.facts))


def start_without_a_claim(evidence: Evidence, choice: int) -> None:
    start = _pick([event for event in evidence.events if event.what == "started"], choice)
    facts = start.facts | {"worker": "worker-9"}
    evidence.events.append(Event(start.t, "worker-9", start.what, facts))


def cancel_unasked(evidence: Evidence, choice: int) -> None:
    job_id = _pick(_of(evidence, CANCEL), choice).job_id
    _keep_events(
        evidence,
        lambda event: event.facts.get("job_id") != job_id or not event.what.startswith("cancel"),
    )


def claim_while_paused(evidence: Evidence, choice: int) -> None:
    """The pause was acknowledged just before a claim began, and resumed long after."""
    claims = [change for change in evidence.audit.jobs if verb_of(change) in CLAIMS]
    claim = _pick(claims, choice)
    pause, lift = evidence.audit.switches[-2:]
    evidence.audit.switches[-2:] = [
        pause._replace(at=claim.at - 300),
        lift._replace(at=claim.at + 10**9),
    ]
    pauses = [event for event in evidence.events if event.what.startswith("pause")]
    _keep_events(evidence, lambda event: event not in pauses)
    answered = evidence.clock.about(claim.at - 200)
    moved = [Event(answered - 200_000, *_rest(pauses[0])), Event(answered, *_rest(pauses[1]))]
    evidence.events.extend(moved)
    evidence.events.sort(key=lambda event: event.t)


def start_late_while_paused(evidence: Evidence, choice: int) -> None:
    """The pause was acknowledged longer before a start than the convergence takes, and resumed long after."""
    start = _pick([event for event in evidence.events if event.what == "started"], choice)
    answered = start.t - int(2 * CONVERGENCE_SECONDS * 1e9)
    at = evidence.clock.latest(answered)
    pause, lift = evidence.audit.switches[-2:]
    evidence.audit.switches[-2:] = [pause._replace(at=at - 100), lift._replace(at=at + 10**9)]
    pauses = [event for event in evidence.events if event.what.startswith("pause")]
    _keep_events(evidence, lambda event: event not in pauses and event.what not in ("fault", "healed"))
    moved = [Event(answered - 300_000, *_rest(pauses[0])), Event(answered, *_rest(pauses[1]))]
    evidence.events.extend(moved)
    evidence.events.sort(key=lambda event: event.t)


def reap_from_the_healthy(evidence: Evidence, choice: int) -> None:
    _keep_events(evidence, lambda event: event.what not in ("fault", "healed"))


def run_again_what_had_finished(evidence: Evidence, choice: int) -> None:
    """Its worker had no fault. Only all servers were away, for a second."""
    _keep_events(evidence, lambda event: event.what not in ("fault", "healed"))
    facts = {"kind": AWAY, "target": ALL_SERVERS}
    evidence.events.insert(0, Event(evidence.events[0].t, "nemesis", "fault", facts))


def count_what_never_started(evidence: Evidence, choice: int) -> None:
    """An attempt that was confirmed long before its worker was frozen."""
    job_id = _reaped_after_a_while(evidence)
    _keep_events(evidence, lambda event: event.facts.get("job_id") != job_id or event.what != "started")


def skip_an_occurrence(evidence: Evidence, choice: int) -> None:
    _forget(evidence, _pick([change for change in evidence.audit.jobs if change.schedule_id], choice).job_id)


def jump_over_an_occurrence(evidence: Evidence, choice: int) -> None:
    changes = evidence.audit.schedules
    step = _pick([change for change in changes if not change.is_edit], choice)
    assert step.cursor is not None
    changes[changes.index(step)] = step._replace(cursor=step.cursor + (step.interval_ms or 0) * 1000)


# Each with the invariants of which one is broken by it, at least.
SABOTAGES: dict[Callable[[Evidence, int], None], set[str]] = {
    drop_a_change: {"I1", "I7"},
    double_a_change: {"I1", "I7"},
    swap_two_changes: {"I7"},
    lose_a_job: {"I1"},
    store_a_job_twice: {"I1"},
    remove_a_row: {"I1"},
    change_a_row: {"I1"},
    reap_too_early: {"I2"},
    miscount_an_attempt: {"I3"},
    use_a_run_again: {"I11"},
    change_a_run: {"I11"},
    take_a_report_from_another: {"I2"},
    complete_what_never_ran: {"I4"},
    complete_what_never_ended: {"I4"},
    start_after_the_completion: {"I5"},
    start_without_a_claim: {"I2"},
    cancel_unasked: {"I7"},
    claim_while_paused: {"I8"},
    start_late_while_paused: {"I8"},
    reap_from_the_healthy: {"I9"},
    run_again_what_had_finished: {"I10"},
    count_what_never_started: {"I3"},
    skip_an_occurrence: {"I6"},
    jump_over_an_occurrence: {"I6"},
}


def _pick(things: Sequence[Thing], choice: int) -> Thing:
    return things[choice % len(things)]


def _of(evidence: Evidence, verb: str) -> list[JobChange]:
    return [change for change in evidence.audit.jobs if verb_of(change) == verb]


def _reaped_after_a_while(evidence: Evidence) -> str:
    keyed = next(change for change in evidence.audit.jobs if change.key == "reaped")
    return keyed.job_id


def _life(evidence: Evidence, job_id: str) -> list[JobChange]:
    return [change for change in evidence.audit.jobs if change.job_id == job_id]


def _state(change: JobChange) -> JobState:
    assert change.new is not None
    return change.new


def _replace(evidence: Evidence, change: JobChange, **facts: object) -> None:
    changes = evidence.audit.jobs
    changes[changes.index(change)] = change._replace(**facts)  # type: ignore[arg-type]


def _forget(evidence: Evidence, job_id: str) -> None:
    evidence.audit.jobs[:] = [change for change in evidence.audit.jobs if change.job_id != job_id]
    evidence.audit.statuses.pop(job_id, None)
    _keep_events(
        evidence, lambda event: event.what not in ("started", "ended") or event.facts["job_id"] != job_id
    )


def _keep_events(evidence: Evidence, is_kept: Callable[[Event], bool]) -> None:
    evidence.events[:] = [event for event in evidence.events if is_kept(event)]


def _rest(event: Event) -> tuple[str, str, dict[str, object]]:
    return event.who, event.what, event.facts


# ---------------------------------------------------------------- test checker properties


# ---------------------------------------------------------------- lives
# Random lives of jobs, all of them legal.


WORKERS = ("worker-1", "worker-2", "worker-3")
_ANSWERS = ("done", "unknown", None)

Move = Callable[[], object]


class Life:
    """A job that takes, at each step, one of the legal arrows."""

    def __init__(self, run: MadeUpRun, key: str, beginning: int) -> None:
        self._job = MadeUpJob(run, key, expect="any", max_attempts=1 + beginning % 3)
        self._has_started = False
        self._begin(beginning)

    def step(self, choice: int) -> None:
        moves = self._moves(WORKERS[choice % len(WORKERS)])
        if moves:
            moves[choice % len(moves)]()

    def finish(self) -> None:
        """Finish it, if it is not finished."""
        job = self._job
        while job.state is not None and job.now.status in ("PENDING", "RETRYING", "RUNNING"):
            if job.now.status != "RUNNING":
                self._claim(WORKERS[0]) if job.now.ready else job.promote()
            elif not job.now.delivered:
                job.beat()
            else:
                self._run_to("completed")

    def _begin(self, beginning: int) -> None:
        job, how = self._job, _ANSWERS[beginning // 3 % len(_ANSWERS)]
        match beginning // 9 % 3:
            case 0:
                job.submit(how)
            case 1:
                job.submit(how, to=WORKERS[0])
            case 2:
                job.send().insert(ready=False).answer(how)

    def _moves(self, worker: str) -> list[Move]:
        job = self._job
        if job.state is None:
            return []
        match job.state.status:
            case "RUNNING":
                return self._ways_to_end()
            case "PENDING" | "RETRYING" if job.state.ready:
                return [lambda: self._claim(worker), lambda: self._claim(worker), job.cancel]
            case "PENDING" | "RETRYING":
                return [job.promote, job.promote, job.cancel]
            case "COMPLETED":
                return [job.delete]
            case _:
                return [job.redrive, job.delete]

    def _ways_to_end(self) -> list[Move]:
        job = self._job
        ways: list[Move] = [job.beat, job.release, job.reap, job.cancel]
        if job.now.delivered:
            outcomes = ("completed", "failed", "discarded")
            ways += [lambda outcome=outcome: self._run_to(outcome) for outcome in outcomes]  # type: ignore[misc]
            ways += [self._start, self._snooze]
        return ways

    def _claim(self, worker: str) -> None:
        self._has_started = False
        self._job.claim(worker)

    def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._job.start()

    def _snooze(self) -> None:
        if not self._has_started:
            self._job.snooze()

    def _run_to(self, outcome: str) -> None:
        self._start()
        self._job.end(outcome)
        if outcome == "completed":
            self._job.complete()
        else:
            self._job.fail(outcome)


def live(beginnings: Iterable[int], choices: Iterable[tuple[int, int]]) -> MadeUpRun:
    """A run with a job for each beginning, whose steps are chosen one after the other: whose, and which.

    And with a bit of everything: a job that is reaped and completed by another, one that had finished
    before, one that is canceled, a pause, and a schedule.
    """
    run = MadeUpRun()
    reaped = MadeUpJob(run, "reaped").submit().claim("worker-1").beat().start()
    for _ in range(5):
        run.wait(LEASE)
        reaped.beat()
    reaped.reap().promote().run("worker-2")
    MadeUpJob(run, "finished").submit().claim("worker-1").start().end().reap().promote().run("worker-2")
    MadeUpJob(run, "cancelled", expect="any").submit().cancel()
    schedule = MadeUpSchedule(run)
    for _ in range(2):
        schedule.fire()
    lives = [Life(run, f"k-{number}", beginning) for number, beginning in enumerate(beginnings)]
    for whose, choice in choices:
        lives[whose % len(lives)].step(choice)
    schedule.fire(late=3 * SECOND)
    run.pause()
    run.resume()
    for life in lives:
        life.finish()
    return run


# ---------------------------------------------------------------- test checker properties


_beginnings = st.lists(st.integers(0, 26), min_size=1, max_size=4)
_choices = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 23)), max_size=30)
_places = st.integers(0, 10_000)


@settings(max_examples=150)
@given(_beginnings, _choices)
def test_legal_lives_pass(beginnings: list[int], choices: list[tuple[int, int]]) -> None:
    verdict = check(live(beginnings, choices).evidence())
    assert verdict.is_good, verdict


@pytest.mark.parametrize("sabotage", list(SABOTAGES), ids=lambda sabotage: sabotage.__name__)
@settings(max_examples=25)
@given(_beginnings, _choices, _places)
@example([9], [(0, 2), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1)], 7466)  # a reap is the first change of its job
def test_each_sabotage_is_found(
    sabotage: Callable[[Evidence, int], None],
    beginnings: list[int],
    choices: list[tuple[int, int]],
    place: int,
) -> None:
    evidence = live(beginnings, choices).evidence()
    sabotage(evidence, place)
    verdict = check(evidence)
    assert SABOTAGES[sabotage] & {violation.invariant for violation in verdict.violations}
    # The verdict shows it.
    assert verdict.violations[0].what in str(verdict)
