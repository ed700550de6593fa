"""Random walks over a workflow: after each step its jobs stand as the model predicts. ADR-0077"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pulse_server.workflows.rules import NewNode, Node
from tests.postgres.workflow_stores import (
    StoredWorkflows,
    SubmittedWorkflow,
    WorkflowStore,
    modeled_workflows,
    node,
)

STEPS = 14
RUNS = ("complete", "fail", "add")
WALK = (*RUNS, "complete", "cancel", "retry", "cancel_workflow", "retry_workflow")


class Walker:
    """A workflow in the store or the model. Steps name its jobs."""

    def __init__(self, workflows: WorkflowStore, workflow: SubmittedWorkflow) -> None:
        self.workflows = workflows
        self.workflow = workflow

    async def run(self, name: str) -> None:
        """Have the job claimed, if it is not: also one that rests after a cancel."""
        if name not in self.workflow.claims:
            await self.workflows.store.time.make_due(self.workflow.ids[name])
            await self.workflows.store.repo.promote_due(1000)
        await self.workflow.start(name)

    async def take(self, step: str, name: str, new: list[NewNode]) -> Any:
        match step:
            case "complete":
                await self.run(name)
                await self.workflow.complete(name)
            case "fail":
                await self.run(name)
                await self.workflow.fail(name)
            case "cancel":
                await self.workflow.cancel(name)
                self.workflow.claims.pop(name, None)
            case "retry":
                await self.workflow.retry(name)
            case "add":
                await self.run(name)
                added = await self.workflow.add(name, *new)
                return added.problem, added.names, added.added
            case "cancel_workflow":
                return await self._cancel()
            case "retry_workflow":
                return await self._retry()
        return None

    async def _cancel(self) -> object:
        answer = await self.workflows.repo.cancel_workflow(self.workflow.id, "")
        if not answer.is_canceled:
            return False
        self.workflow.claims.clear()
        return self._names([entry.job.id for entry in answer.jobs])

    async def _retry(self) -> object:
        back = await self.workflows.repo.retry_workflow(self.workflow.id, 5)
        return self._names([job.id for job in back])

    def _names(self, job_ids: list[str]) -> set[str]:
        return {name for name, job_id in self.workflow.ids.items() if job_id in job_ids}

    async def view(self) -> object:
        while (await self.workflows.settle()).is_more:
            pass
        view = await self.workflow.view()
        counts = (view.jobs, view.unfinished, view.succeeded, view.failed, view.canceled, view.skipped)
        return (
            view.status,
            view.finished_at is None,
            counts,
            [_stands(one) for one in await self.workflow.nodes()],
        )


def _stands(one: Node) -> object:
    # Which of several ready jobs is claimed first may differ.
    is_live = one.status in ("PENDING", "RUNNING", "RETRYING")
    status = "live" if is_live else one.status
    ended = (one.outcome, one.dropped, one.held, status, one.last_error)
    return one.name, ended, one.unended, list(one.parents)


def nodes(random: Random) -> list[NewNode]:
    names = "abcdefg"[: random.randint(3, 7)]
    return [
        node(name, *random.sample(names[:place], min(place, random.choice([0, 1, 1, 2]))), when=_when(random))
        for place, name in enumerate(names)
    ]


def addition(random: Random, known: list[str], number: int) -> list[NewNode]:
    names = [f"x{number}", random.choice([f"y{number}", random.choice(known)])]
    return [
        node(
            name,
            *random.sample(known, random.choice([0, 1])),
            when=_when(random),
            before=random.sample(known, random.choice([0, 0, 1])),
        )
        for name in names
    ]


def _when(random: Random) -> str:
    return random.choice(["succeeded", "succeeded", "failed", "always"])


@pytest.mark.parametrize("seed", range(40))
async def test_workflow_stands_as_the_model_predicts_after_each_step(
    workflows: StoredWorkflows, seed: int
) -> None:
    random = Random(seed)
    drawn = nodes(random)
    walkers = [Walker(each, await each.submit(*drawn)) for each in (modeled_workflows(), workflows)]
    walked: list[object] = []
    for number in range(STEPS):
        states = await walkers[0].workflow.states()
        ready = [name for name, state in states.items() if state == "ready"]
        step = random.choice(WALK)
        name = random.choice(ready if step in RUNS and ready else list(states))
        if step in RUNS and not ready:
            continue
        new = addition(random, list(states), number)
        walked.append((step, name, new if step == "add" else ()))
        answers = [await walker.take(step, name, new) for walker in walkers]
        assert answers[0] == answers[1], walked
        views = [await walker.view() for walker in walkers]
        assert views[0] == views[1], walked
