"""An application of a run, as a process of its own: `python -m faults.load '{…}'`.

It enqueues all the time, in every way the SDK has, and now and then acts on what it enqueued. After an error
it does not retry: the outcome is recorded as unknown. It exits after SIGTERM, once every call has its answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections import deque
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pulse
from faults.history import History, Operation
from faults.meddling import Meddler, pause
from faults.operating import REFUSALS, doors_open, in_words
from faults.orders import Order, draw_order
from faults.stepped_work import SIGNAL
from faults.wishing import Wishing
from faults.workflow_load import WorkflowMeddler, WorkflowProducer

# Many: each of them waits while the server that it called is unreachable.
_PRODUCERS = 20
_WISHERS = 8
_WORKFLOW_PRODUCERS = 4
# Of the jobs, so many are of workflows.
_WORKFLOW_SHARE = 0.2
_REMEMBERED = 300
# The share of jobs with an idempotency key that is enqueued twice, whatever the first outcome was.
_REPEATED_SHARE = 0.4
_MEDDLE_SECONDS = 0.4
# The share of jobs whose results are awaited, and for how long.
_AWAITED_SHARE, _AWAITED_SECONDS = 0.15, (0.2, 15.0)
# For operator actions: longer than most outages, so that most outcomes are known.
_TIMEOUT = timedelta(seconds=10)


class Producer:
    """Enqueues one order after the other, and remembers what was acknowledged."""

    def __init__(self, history: History, doors: list[pulse.Pulse], random: Random) -> None:
        self.acknowledged: deque[tuple[str, Order]] = deque(maxlen=_REMEMBERED)
        self._history = history
        self._doors = doors
        self._random = random
        self._numbers = count(1)
        self._signaling: set[asyncio.Task[None]] = set()
        self._waiters: set[asyncio.Task[None]] = set()

    async def enqueue_on_and_on(self, jobs_per_second: float, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            order = draw_order(self._random, self._key)
            await self._enqueue(order, is_repeat=False)
            if order.has_key and self._random.random() < _REPEATED_SHARE:
                await self._enqueue(order, is_repeat=True)
            await pause(self._random.expovariate(jobs_per_second / len(order.errands)), is_over)
        await asyncio.gather(*self._signaling)
        for waiter in self._waiters:
            waiter.cancel()

    def _key(self) -> str:
        return f"{self._history.who}-{next(self._numbers)}"

    async def _enqueue(self, order: Order, *, is_repeat: bool) -> None:
        submits = [
            self._history.operation(
                "submit", key=errand.key, topic=order.topic, expect=errand.expect, **_unique_facts(order)
            )
            for errand in order.errands
        ]
        try:
            handles = await self._send(order)
        except pulse.PartialFailure as failure:
            for place, (submit, handle) in enumerate(zip(submits, failure.handles, strict=True)):
                self._settle(submit, order, place, handle or failure.errors[place])
        except pulse.PulseError as error:
            for place, submit in enumerate(submits):
                self._settle(submit, order, place, error)
        else:
            for place, (submit, handle) in enumerate(zip(submits, handles, strict=True)):
                # However often the SDK repeated it: to its caller it is no duplicate.
                assert is_repeat or order.unique or not handle.duplicate, f"{handle} was there before"
                self._settle(submit, order, place, handle)

    async def _send(self, order: Order) -> list[pulse.JobHandle]:
        door = self._random.choice(self._doors)
        options: dict[str, Any] = {
            "priority": order.priority,
            "delay": order.delay,
            "max_attempts": order.max_attempts,
            "timeout": order.timeout,
            "start_within": order.start_within,
            "lane": order.lane,
            "unique": order.unique,
        }
        if order.is_bulk:
            return await door.enqueue_many(order.topic, order.errands, **options)
        (errand,) = order.errands
        key = errand.key if order.has_key else None
        return [await door.enqueue(order.topic, errand, key=key, **options)]

    async def _signal(self, job_id: str) -> None:
        """Send the signal that the job waits for, or will."""
        value = self._key()
        signal = self._history.operation("signal", job_id=job_id, value=value)
        try:
            await self._random.choice(self._doors).signal(job_id, SIGNAL, value)
        except REFUSALS as error:
            signal.refused(in_words(error))
        except pulse.PulseError as error:
            signal.unknown(in_words(error))
        else:
            signal.done()

    async def _await(self, handle: pulse.JobHandle) -> None:
        """Wait for the result of a job. Whether it ended is unknown after a timeout."""
        seconds = self._random.uniform(*_AWAITED_SECONDS)
        waiting = self._history.operation("await", job_id=handle.id)
        try:
            result = await handle.result(timeout=timedelta(seconds=seconds))
        except pulse.JobFailed:
            waiting.done(status="DEAD_LETTERED")
        except pulse.JobCanceled:
            waiting.done(status="CANCELED")
        except pulse.PulseError as error:
            waiting.unknown(in_words(error))
        else:
            waiting.done(status="COMPLETED", result=result)

    def _settle(
        self, submit: Operation, order: Order, place: int, outcome: pulse.JobHandle | pulse.PulseError
    ) -> None:
        if isinstance(outcome, pulse.JobHandle):
            submit.done(job_id=outcome.id, **({"duplicate": outcome.duplicate} if order.unique else {}))
            self.acknowledged.append((outcome.id, replace(order, errands=[order.errands[place]])))
            if order.errands[place].expect == "steps":
                _keep(asyncio.create_task(self._signal(outcome.id)), self._signaling)
            if self._random.random() < _AWAITED_SHARE:
                _keep(asyncio.create_task(self._await(outcome)), self._waiters)
        elif isinstance(outcome, REFUSALS):
            submit.refused(in_words(outcome))
        else:
            submit.unknown(in_words(outcome))


def _keep(task: asyncio.Task[None], tasks: set[asyncio.Task[None]]) -> None:
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _unique_facts(order: Order) -> dict[str, Any]:
    unique = order.unique
    if unique is None:
        return {}
    period = unique.period.total_seconds() if unique.period else 0.0
    facts = {"key": unique.key, "while_": unique.while_, "on_conflict": unique.on_conflict, "period": period}
    return {"unique": facts}


async def main(
    name: str,
    addresses: list[str],
    history: str,
    seed: str,
    bank: str,
    jobs_per_second: float,
    wishes_per_second: float,
) -> None:
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_over.set)
    logging.info("The application runs.")
    with History(Path(history), name) as events:
        async with doors_open(addresses, _TIMEOUT) as doors:
            producer = Producer(events, doors, Random(f"{seed} orders"))
            meddler = Meddler(events, doors, Random(f"{seed} meddling"), producer.acknowledged)
            workflows = WorkflowProducer(events, doors, Random(f"{seed} workflows"))
            of_workflows = Random(f"{seed} meddling with workflows")
            workflow_meddler = WorkflowMeddler(events, doors, of_workflows, workflows.acknowledged)
            wishing = Wishing(events, bank, doors, Random(f"{seed} wishes"))
            async with asyncio.TaskGroup() as tasks:
                plain = jobs_per_second * (1 - _WORKFLOW_SHARE) / _PRODUCERS
                for _ in range(_PRODUCERS):
                    tasks.create_task(producer.enqueue_on_and_on(plain, is_over))
                in_workflows = jobs_per_second * _WORKFLOW_SHARE / _WORKFLOW_PRODUCERS
                for _ in range(_WORKFLOW_PRODUCERS):
                    tasks.create_task(workflows.submit_on_and_on(in_workflows, is_over))
                tasks.create_task(workflow_meddler.meddle(_MEDDLE_SECONDS, is_over))
                tasks.create_task(meddler.meddle(_MEDDLE_SECONDS, is_over))
                if wishes_per_second:
                    for _ in range(_WISHERS):
                        tasks.create_task(wishing.wish_on_and_on(wishes_per_second / _WISHERS, is_over))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(**json.loads(sys.argv[1])))
