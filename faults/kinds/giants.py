"""A workflow of ten thousand jobs is canceled while it runs, and retried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pulse
from faults.adding import end_all, record_submits
from faults.errands import Errand
from faults.kinds.fault import Fault, Kind
from faults.topics import MANY
from pulse.ids import uuid7
from pulse.payload import encode
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from faults.world import World

GIANT = "giant workflow"
_TARGET = "a workflow"
# One before all others, and one after them. Messages are bounded in bytes.
_JOBS, _PIECE, _ATTEMPTS = 10_000, 500, 20
_SECONDS = (8.0, 11.0)
_TRIES, _BETWEEN_SECONDS = 5, 0.5
_TIMEOUT = timedelta(seconds=30)


def _drawn(random: Random) -> Fault:
    how = {"number": random.randrange(2**31), "wait": random.choice((0.1, 1.0, 3.0))}
    return Fault(_TARGET, random.uniform(*_SECONDS), frozenset(), how)


async def _cancel_and_retry(world: World, fault: Fault) -> None:
    with world.recorded(fault.kind, fault.target, number=fault.how["number"]):
        workflow_id = await _submit(world, f"giant-{fault.how['number']}")
        await asyncio.sleep(fault.how["wait"])
        await world.operator.cancel_workflow(workflow_id)
        await asyncio.sleep(_BETWEEN_SECONDS)
        for _ in range(_TRIES):
            if await world.operator.redrive_workflow(workflow_id):
                break
            await asyncio.sleep(_BETWEEN_SECONDS)


async def _submit(world: World, name: str) -> str:
    """In pieces: all links of a run pass through this process."""
    errands = [Errand(f"{name}-{number}") for number in range(_JOBS)]
    jobs = await asyncio.to_thread(_jobs, errands)
    workflow_id = uuid7()
    keys = [errand.key for errand in errands]
    operation = world.history.operation("workflow", workflow_id=workflow_id, keys=keys)
    submits = []
    for at in range(0, _JOBS, _PIECE):
        submits += record_submits(world.history, jobs[at : at + _PIECE], errands[at : at + _PIECE])
        await asyncio.sleep(0)
    messages = [pb.SubmitWorkflowRequest(jobs=jobs[at : at + _PIECE]) for at in range(0, _JOBS, _PIECE)]
    messages[0].workflow_id, messages[0].name = workflow_id, "giant"
    caller = world.operator.door()._caller
    try:
        answer = await caller.call(lambda stub: stub.SubmitWorkflow, messages, _TIMEOUT)  # type: ignore[arg-type,return-value]
    except pulse.PulseError as error:
        end_all([operation, *submits], error)
        return workflow_id
    assert isinstance(answer, pb.SubmitWorkflowResponse)
    operation.done()
    for place, (submit, job_id) in enumerate(zip(submits, answer.job_ids, strict=True)):
        submit.done(job_id=job_id)
        if place % _PIECE == 0:
            await asyncio.sleep(0)
    return workflow_id


def _jobs(errands: Sequence[Errand]) -> list[pb.WorkflowJob]:
    first, *middle, last = errands
    after = {first.key: [], last.key: [errand.key for errand in middle]}
    return [
        pb.WorkflowJob(
            job=pb.SubmitJobRequest(topic=MANY[2], payload=encode(errand), max_attempts=_ATTEMPTS),
            name=errand.key,
            after=after.get(errand.key, [first.key]),
            when="succeeded",
        )
        for errand in errands
    ]


KINDS = [Kind(GIANT, _drawn, _cancel_and_retry, 1)]
