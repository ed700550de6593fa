"""Jobs of workflows, as they are submitted, and the work of handlers that add some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pulse
from faults.errands import Errand
from faults.history import History, Operation
from faults.limited_topics import LIMITED
from faults.operating import REFUSALS, in_words
from faults.stepped_work import run_of
from faults.topics import MANY
from faults.workflows.shapes import SUCCEEDED, draw_condition
from pulse.payload import encode
from pulse.v1 import pulse_pb2 as pb

# Handlers that add jobs are asynchronous. A waiting job takes no slot of a limit.
_TOPICS = {"mail": 4, "report": 3, LIMITED: 1, MANY[0]: 1, MANY[1]: 1}
_SECONDS = (0.0, 0.0, 0.0, 0.01, 0.05, 0.2)
_ATTEMPTS = 20
_DELAYED_SHARE, _DELAY_SECONDS = 0.08, (0.05, 0.5)
_PRIORITY_SHARE, _PRIORITIES = 0.2, range(-5, 6)
_MOST_ADDED, _AFTER_SHARE, _BEFORE_SHARE, _TWICE_SHARE = 3, 0.5, 0.5, 0.5
_LATE_SHARE, _LATE_SECONDS = 0.1, (0.5, 3.0)
_TIMEOUT = timedelta(seconds=10)


def draw_job(random: Random, errand: Errand, after: Sequence[str], when: str) -> pb.WorkflowJob:
    (topic,) = random.choices(list(_TOPICS), weights=list(_TOPICS.values()))
    job = pb.SubmitJobRequest(topic=topic, payload=encode(errand), max_attempts=_ATTEMPTS)
    if random.random() < _PRIORITY_SHARE:
        job.priority = random.choice(_PRIORITIES)
    if random.random() < _DELAYED_SHARE:
        job.delay.FromTimedelta(timedelta(seconds=random.uniform(*_DELAY_SECONDS)))
    return pb.WorkflowJob(job=job, name=errand.key, after=after, when=when)


def record_submits(
    history: History, jobs: Sequence[pb.WorkflowJob], errands: Sequence[Errand]
) -> list[Operation]:
    return [
        history.operation("submit", key=errand.key, topic=job.job.topic, expect=errand.expect)
        for job, errand in zip(jobs, errands, strict=True)
    ]


def end_all(operations: Sequence[Operation], error: pulse.PulseError) -> None:
    for operation in operations:
        if isinstance(error, REFUSALS):
            operation.refused(in_words(error))
        else:
            operation.unknown(in_words(error))


class Adding:
    """The work of handlers that add jobs to their workflow: the same ones in every run, some twice."""

    def __init__(self, history: History, worker_id: str, client: pulse.Pulse) -> None:
        self._history = history
        self._worker_id = worker_id
        self._client = client

    async def work(self, errand: Errand, ctx: pulse.Context) -> None:
        random = Random(ctx.job_id)
        errands = [
            Errand(f"{errand.key}+{number}", "complete", random.choice(_SECONDS))
            for number in range(1, random.randint(1, _MOST_ADDED) + 1)
        ]
        jobs = [
            draw_job(random, added, after=[errand.key], when=draw_condition(random))
            if random.random() < _AFTER_SHARE
            else draw_job(random, added, after=[], when=SUCCEEDED)
            for added in errands
        ]
        if errand.children and random.random() < _BEFORE_SHARE:
            jobs[-1].before.append(random.choice(errand.children))
        for _ in range(2 if random.random() < _TWICE_SHARE else 1):
            # Some begin late. Their leases may be lost by then.
            await asyncio.sleep(random.uniform(*_LATE_SECONDS) if random.random() < _LATE_SHARE else 0)
            await self._add(ctx, jobs, errands)

    async def _add(
        self, ctx: pulse.Context, jobs: Sequence[pb.WorkflowJob], errands: Sequence[Errand]
    ) -> None:
        keys = [errand.key for errand in errands]
        operation = self._history.operation("add", job_id=ctx.job_id, run=run_of(ctx), keys=keys)
        submits = record_submits(self._history, jobs, errands)
        claim = pb.Claim(job_id=ctx.job_id, attempt=ctx.attempt, run=run_of(ctx))
        request = pb.AddToWorkflowRequest(worker_id=self._worker_id, claim=claim, jobs=jobs)
        try:
            # Not repeated: a repeat may be refused although the first call was carried out.
            answer = await self._client._caller.call(
                lambda stub: stub.AddToWorkflow, request, _TIMEOUT, repeatable=False
            )
        except pulse.PulseError as error:
            end_all([operation, *submits], error)
            return
        operation.done()
        for submit, job_id in zip(submits, answer.job_ids, strict=True):
            submit.done(job_id=job_id)
