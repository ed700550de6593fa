"""Random lives of jobs, all of them legal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.schedules import SECOND, MadeUpSchedule

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
