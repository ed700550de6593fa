"""Producers of workflows, and operators who act on them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from random import Random

import pulse
from faults.adding import draw_job, end_all, record_submits
from faults.errands import Errand
from faults.history import History
from faults.meddling import pause
from faults.operating import Operator
from faults.workflows.shapes import Shape, draw_shape
from pulse.ids import uuid7
from pulse.v1 import pulse_pb2 as pb

# The outcomes of handlers, out of a hundred. A job that is dead-lettered decides about all jobs behind it.
_EXPECTATIONS = {"complete": 66, "add": 14, "fail_once": 4, "retry_once": 4, "snooze_once": 4, "discard": 8}
_SECONDS = (0.0, 0.0, 0.0, 0.01, 0.05, 0.2)
# Some are submitted twice, whatever the first outcome was. Some arrive in several messages.
_REPEATED_SHARE, _PIECES = 0.25, (1, 1, 2, 5)
_REMEMBERED = 100
_TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True)
class WorkflowOrder:
    """A workflow, as it is submitted. The name of a job is the key of its errand."""

    id: str
    jobs: list[pb.WorkflowJob]
    errands: list[Errand]


class WorkflowProducer:
    """Submits one workflow after the other, and remembers what was acknowledged."""

    def __init__(self, history: History, doors: list[pulse.Pulse], random: Random) -> None:
        self.acknowledged: deque[tuple[str, list[str]]] = deque(maxlen=_REMEMBERED)
        self._history = history
        self._doors = doors
        self._random = random
        self._numbers = count(1)

    async def submit_on_and_on(self, jobs_per_second: float, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            order = self._draw(draw_shape(self._random))
            await self._submit(order)
            if self._random.random() < _REPEATED_SHARE:
                await self._submit(order)
            await pause(self._random.expovariate(jobs_per_second / len(order.jobs)), is_over)

    def _draw(self, shape: Shape) -> WorkflowOrder:
        random = self._random
        workflow = f"{self._history.who}-workflow-{next(self._numbers)}"
        names = {number: f"{workflow}-{number}" for number in shape.numbers}
        errands = []
        for number in shape.numbers:
            (expect,) = random.choices(list(_EXPECTATIONS), weights=list(_EXPECTATIONS.values()))
            children = [names[child] for parent, child in sorted(shape.edges) if parent == number]
            errands.append(Errand(names[number], expect, random.choice(_SECONDS), children=children))
        jobs = [
            draw_job(
                random,
                errand,
                after=[names[parent] for parent in shape.parents_of(number)],
                when=shape.condition_of(number),
            )
            for number, errand in zip(shape.numbers, errands, strict=True)
        ]
        return WorkflowOrder(uuid7(), jobs, errands)

    async def _submit(self, order: WorkflowOrder) -> None:
        keys = [errand.key for errand in order.errands]
        operation = self._history.operation("workflow", workflow_id=order.id, keys=keys)
        submits = record_submits(self._history, order.jobs, order.errands)
        size = -(-len(order.jobs) // self._random.choice(_PIECES))
        messages = [
            pb.SubmitWorkflowRequest(jobs=order.jobs[at : at + size])
            for at in range(0, len(order.jobs), size)
        ]
        messages[0].workflow_id, messages[0].name = order.id, "chaos"
        caller = self._random.choice(self._doors)._caller
        try:
            answer = await caller.call(lambda stub: stub.SubmitWorkflow, messages, _TIMEOUT)  # type: ignore[arg-type,return-value]
        except pulse.PulseError as error:
            end_all([operation, *submits], error)
            return
        assert isinstance(answer, pb.SubmitWorkflowResponse)
        operation.done()
        for submit, job_id in zip(submits, answer.job_ids, strict=True):
            submit.done(job_id=job_id)
        self.acknowledged.append((order.id, list(answer.job_ids)))


class WorkflowMeddler:
    """Cancels, redrives and deletes jobs of workflows, and cancels and redrives workflows."""

    def __init__(
        self,
        history: History,
        doors: list[pulse.Pulse],
        random: Random,
        acknowledged: Sequence[tuple[str, list[str]]],
    ) -> None:
        self._operator = Operator(history, doors, random)
        self._random = random
        self._acknowledged = acknowledged

    async def meddle(self, every_seconds: float, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await pause(self._random.expovariate(1 / every_seconds), is_over)
            if self._acknowledged:
                await self._act(*self._random.choice(self._acknowledged))

    async def _act(self, workflow_id: str, job_ids: list[str]) -> None:
        job_id = self._random.choice(job_ids)
        match self._random.choice(("cancel", "redrive", "redrive", "delete", "cancel all", "redrive all")):
            case "cancel":
                await self._operator.cancel(job_id)
            case "redrive":
                await self._operator.redrive(job_id)
            case "delete":
                await self._operator.delete(job_id)
            case "cancel all":
                await self._operator.cancel_workflow(workflow_id)
            case "redrive all":
                await self._operator.redrive_workflow(workflow_id)
