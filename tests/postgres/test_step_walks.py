"""Random walks over one job with steps and signals: after each action it stands as the model predicts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pulse_server.jobs.reports import SnoozeReport
from pulse_server.jobs.rules import Claim, JobStatus
from tests.fakes.store import failure
from tests.postgres.stepped import BOUNDS, HOUR, ModeledSteps, Stepped, StoredSteps

ACTIONS = 30
OF_A_WORKER = (
    "step",
    "step",
    "sleep",
    "wait",
    "take",
    "take",
    "fail",
    "snooze",
    "release",
    "discard",
    "late",
)
OF_OTHERS = ("signal", "end_waits", "cancel", "retry", "fresh", "find")
OFTEN = ("step", "take", "signal")
NAMES = ("a", "b", "approved", "approved\nrejected")
SIGNALS = ("approved", "rejected", "other")


class Walker:
    """The job in the store or the model, and the claim that holds it."""

    def __init__(self, stepped: Stepped) -> None:
        self.stepped = stepped
        self.repo = stepped.store.repo
        self.claim: Claim | None = None

    async def begin(self) -> None:
        self.claim = await self.stepped.store.start(max_attempts=100)
        self.job_id = self.claim.job_id

    async def act(self, action: str, name: str, value: bytes) -> Any:
        if action in OF_A_WORKER:
            return await self._work(action, name, value)
        match action:
            case "signal":
                return await self.stepped.signal(self.job_id, SIGNALS[len(value) % 3], value)
            case "end_waits":
                return await self.stepped.end_waits()
            case "cancel":
                return len(await self.repo.cancel_jobs([self.job_id], "by hand"))
            case "find":
                return _stands(await self.stepped.steps.find_step(self.job_id, name))
            case _:
                return len(await self.repo.retry_jobs([self.job_id], 9, fresh=action == "fresh"))

    async def _work(self, action: str, name: str, value: bytes) -> Any:
        claim = await self._claimed()
        if claim is None:
            return None
        match action:
            case "step":
                return await self.stepped.step(claim, name, value)
            case "late":
                return await self.stepped.step(claim._replace(run=999), name, value)
            case "sleep":
                ended = await self.stepped.sleep(claim, step=name)
                return ended and ended.status
            case "wait":
                delay = HOUR if len(value) % 2 else None
                ended = await self.stepped.wait(claim, NAMES[-1], delay, step=name)
                return ended and ended.status
            case "take":
                taken = await self.stepped.steps.take_signal(claim, name, NAMES[-1], BOUNDS)
                return taken and (_stands(taken.step), taken.is_over)
            case "fail" | "discard":
                failed = await self.repo.fail_jobs([failure(claim, discard=action == "discard")])
                return [ended.status for ended in failed.values()]
            case "snooze":
                return len(await self.repo.snooze_jobs([SnoozeReport(claim, HOUR)]))
            case _:
                return list((await self.repo.release_jobs([claim])).values())

    async def _claimed(self) -> Claim | None:
        """The claim that holds the job. A job that waits is made due, and claimed."""
        job = await self.stepped.store.job(self.job_id)
        if job.status is JobStatus.RUNNING:
            return self.claim
        if job.finished_at is not None:
            return None
        if not job.ready:
            await self.stepped.store.time.make_due(self.job_id)
            await self.repo.promote_due(10)
        (self.claim,) = await self.stepped.store.claim()
        return self.claim

    async def view(self) -> object:
        job = await self.stepped.store.job(self.job_id)
        states = (job.status, job.ready, job.attempts, job.run, job.snoozes, job.last_error, job.error_group)
        waits = (job.steps, job.suspensions, job.waits_for, job.next_run_at.year == 9999)
        history = [(past.outcome, past.attempt, past.error) for past in job.history]
        steps = [_stands(step) for step in await self.stepped.steps.list_steps(self.job_id)]
        return states, waits, history, steps, await self.stepped.rows()


def _stands(step: Any) -> object:
    if step is None:
        return None
    is_stored, has_end = step.stored_at is not None, step.until is not None
    known = (step.name, step.kind, step.attempt, step.value is not None, step.size, step.signal)
    return known, is_stored, has_end, step.is_due, step.signal_id is not None


@pytest.mark.parametrize("seed", range(40))
async def test_job_with_steps_stands_as_the_model_predicts_after_each_action(
    stepped: StoredSteps, seed: int
) -> None:
    random = Random(seed)
    walkers = [Walker(each) for each in (ModeledSteps(), stepped)]
    for walker in walkers:
        await walker.begin()
    walked: list[object] = []
    for number in range(ACTIONS):
        is_last = number == ACTIONS - 1
        drawn = (random.choice((*OF_A_WORKER, *OF_OTHERS, *OFTEN)), random.choice((*NAMES, f"n{number}")))
        value = b"x" * random.choice((1, 2, 3, 4, 900, 4000))
        walked.append((*drawn, len(value)))
        answers = [await walker.act(*drawn, value) for walker in walkers]
        assert answers[0] == answers[1], walked
        if is_last:
            for walker in walkers:
                if (claim := await walker._claimed()) is not None:
                    await walker.repo.complete_jobs([claim])
        views = [await walker.view() for walker in walkers]
        assert views[0] == views[1], walked
