"""Runs the jobs of a kit: one at a time, in the order in which pulsed would start them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from pulse import tuning
from pulse.handlers.options import NO_OPTIONS
from pulse.outcomes import Cancelled, Discard, Retry, Snooze, Suspension
from pulse.testing.destination import ToKit
from pulse.testing.handlers import Handlers
from pulse.testing.server import WORKER, KitServer
from pulse.testing.worker import Ran, Worker
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.declaring import declared_policy
from pulse_server.domain.jobs import Job
from pulse_server.domain.status import TERMINAL

# More attempts in one drain: a handler enqueues itself, most likely.
MOST_ATTEMPTS = 10_000

# Handlers raise these on purpose.
_MEANT = (Retry, Snooze, Discard, Suspension)


class Working:
    """The worker of a kit."""

    def __init__(self, server: KitServer, destination: ToKit, handlers: Handlers) -> None:
        self._server = server
        self._destination = destination
        self.handlers = handlers
        self._declared: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._is_running = False

    # ------------------------------------------------------------ verbs

    async def run_one(self, row: Job, attempt: int | None) -> Ran:
        """Run one attempt of the job."""
        if row.status in TERMINAL:
            raise AssertionError(
                f"Job {row.id} ({row.topic}) is {row.status.value}: there is nothing to run."
            )
        if attempt is not None and not 1 <= attempt <= row.max_attempts:
            raise AssertionError(
                f"attempt has to be between 1 and {row.max_attempts}, the attempts of the job, not {attempt}."
            )
        self.declare()
        served = self.handlers.find(row.topic)
        if row.held:
            raise AssertionError(
                f"Job {row.id} ({row.topic}) waits for other jobs of its workflow. Run these."
            )
        async with self._opened() as worker:
            await worker.open(served.client)
            return await worker.attempt(self._server.claim_job(row.id, attempt), served)

    async def drain(self, raises: bool) -> dict[str, int]:
        """Run what is due, and what that enqueues."""
        self.declare()
        counted: Counter[str] = Counter()
        async with self._opened() as worker:
            while (topic := self._server.next_topic(self.handlers.topics())) is not None:
                # Before the claim: a job whose handler cannot be called stays as it is.
                served = self.handlers.find(topic)
                await worker.open(served.client)
                assignment = self._server.claim([topic])
                assert assignment is not None
                ran = await worker.attempt(assignment, served)
                counted[ran.outcome] += 1
                if ran.error is not None and (_is_of_test(ran.error) or (raises and not _is_meant(ran))):
                    raise ran.error
                if counted.total() >= MOST_ATTEMPTS:
                    raise AssertionError(
                        f"{MOST_ATTEMPTS} attempts ran and jobs are still due: does {assignment.topic!r} "
                        "enqueue itself?"
                    )
        return dict(counted)

    async def advance(self, duration: timedelta, schedules: bool, raises: bool) -> None:
        """Move the clock. Jobs run on the way, each when it is due."""
        until = self._begin_advance(duration, schedules)
        until += await self._drain_now(schedules, raises)
        while (moment := self._next_moment(schedules, with_jobs=True)) is not None and moment <= until:
            self._server.clock.move_to(moment)
            until += await self._drain_now(schedules, raises)
        self._server.clock.move_to(until)

    async def _drain_now(self, schedules: bool, raises: bool) -> timedelta:
        """Run what is due now. An occurrence that was queued behind a job fires when that job has ended.

        Returns how far the readings have moved the clock. The end of the way moves with it: a job that is
        enqueued for the last moment is due then.
        """
        begin = self._server.clock.time
        while True:
            if schedules:
                self._server.fire_schedules()
            if not await self.drain(raises):
                return self._server.clock.time - begin

    def skip(self, duration: timedelta, schedules: bool) -> None:
        """Move the clock. No job runs."""
        until = self._begin_advance(duration, schedules)
        while (
            schedules and (moment := self._next_moment(True, with_jobs=False)) is not None and moment <= until
        ):
            self._server.clock.move_to(moment)
            self._server.fire_schedules()
        self._server.clock.move_to(until)
        if schedules:
            self._server.fire_schedules()
        self._server.make_ready()

    # ------------------------------------------------------------ declarations

    def declare(self) -> None:
        """Declare the policies of new handlers, as workers do at their start."""
        # Two clients may have the topic. If both have a handler for it, running a job of it is refused.
        found = map(self.handlers.look_for, dict.fromkeys(self._new_topics()))
        served = [one for one in found if one is not None]
        for begin in range(0, len(served), tuning.POLICIES_PER_DECLARATION):
            some = served[begin : begin + tuning.POLICIES_PER_DECLARATION]
            policies = [declared_policy(one.handler) for one in some]
            request = pb.DeclareTopicPoliciesRequest(worker_id=WORKER, policies=policies)
            self._server.ask("DeclareTopicPolicies", request)

    def _new_topics(self) -> list[str]:
        """Return the topics of handlers that were not there at the last call, and have options."""
        new: list[str] = []
        for client in self.handlers.clients:
            if len(client._registry) != self._declared.get(client):
                handlers = self.handlers.of(client)
                self._declared[client] = len(handlers)
                new += [handler.topic for handler in handlers if handler.options is not NO_OPTIONS]
        return new

    def _begin_advance(self, duration: timedelta, schedules: bool) -> Any:
        if duration < timedelta(0):
            raise AssertionError(f"The clock only moves forward, not by {duration}.")
        self.declare()
        if schedules:
            for declaration in self.handlers.schedules():
                request = declaration._complete()
                request.replace = True
                self._server.ask("CreateSchedule", request)
        return self._server.clock.time + duration

    def _next_moment(self, schedules: bool, *, with_jobs: bool) -> Any:
        moments = [self._server.next_fire() if schedules else None]
        if with_jobs and (wait := self._server.make_ready()) is not None:
            moments.append(self._server.clock.time + wait)
        return min((moment for moment in moments if moment is not None), default=None)

    # ------------------------------------------------------------ attempts

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Worker]:
        if self._is_running:
            raise AssertionError("The kit is running jobs already: a handler cannot run other jobs.")
        self._is_running = True
        self._destination.loop = asyncio.get_running_loop()
        try:
            async with contextlib.AsyncExitStack() as stack:
                yield Worker(self._server, stack, self.handlers)
        finally:
            self._is_running = False
            self._destination.loop = None


def _is_meant(ran: Ran) -> bool:
    """Whether the error is no failure: the handler raised it on purpose, or its job was canceled."""
    if ran.outcome == "canceled" and isinstance(ran.error, Cancelled | asyncio.CancelledError):
        return True
    return isinstance(ran.error, _MEANT)


def _is_of_test(error: BaseException) -> bool:
    """Whether the error is not the handler's: Ctrl-C, `pytest.fail` and `pytest.skip`."""
    of_pytest: type[BaseException] = getattr(
        sys.modules.get("_pytest.outcomes"), "OutcomeException", KeyboardInterrupt
    )
    return isinstance(error, KeyboardInterrupt | of_pytest)
