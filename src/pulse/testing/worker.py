"""Runs claimed jobs of a kit, and stores their results."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pulse.handlers.step_calls import StepCalls
from pulse.models.jobs import JobInfo, JobStatus
from pulse.models.verdicts import verdict_of_attempt
from pulse.payload import result_decoder_for
from pulse.testing.attempts import Attempt
from pulse.testing.handlers import Handlers, Served
from pulse.testing.server import SETTINGS, WORKER, KitServer, view
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.worker.verdicts import call_hooks
from pulse_server.domain.jobs import Job, Outcome
from pulse_server.domain.status import TERMINAL


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt of a job."""

    outcome: str
    """completed, retry, dead_lettered, snoozed, sleeping, waiting (for a signal) or canceled."""
    delay: timedelta | None
    """How long until the next attempt. None if there is none, or if it waits for a signal."""
    result: Any
    """The result of a completed job, as its handle returns it."""
    error: BaseException | None
    """What the handler raised."""
    job: JobInfo
    """The job after the attempt."""


class Worker:
    """Runs attempts while a verb of the kit lasts. Resources open with the first handler of a client."""

    def __init__(self, server: KitServer, stack: contextlib.AsyncExitStack, handlers: Handlers) -> None:
        self._server = server
        self._stack = stack
        self._handlers = handlers
        self._steps: dict[Any, StepCalls] = {}

    async def attempt(self, assignment: pb.JobAssignment, served: Served) -> Ran:
        """Run a claimed job of a client that is open, and store its result."""
        attempt = Attempt(assignment, served.handler, self._steps[served.client])
        with self._server.roster.holding(assignment.job_id, attempt.stop):
            await attempt.run()
        if attempt.job.outcome is not None:  # None: the job was canceled
            self._server.ask("ReportResults", attempt.report())
        row = self._server.repo.jobs.get(assignment.job_id)
        if row is None:
            raise AssertionError(f"Job {assignment.job_id} ({assignment.topic}) was deleted while it ran.")
        ran = _ran(row, attempt, self._server)
        await self._pass_verdict(served.client, ran)
        return ran

    async def _pass_verdict(self, client: Any, ran: Ran) -> None:
        """Call the hooks of the application for an attempt that failed or was canceled, as a worker does."""
        hooks = getattr(client, "_async", client)._verdict_hooks
        if hooks and ran.outcome in ("retry", "dead_lettered", "canceled"):
            verdict = verdict_of_attempt(ran.job, WORKER, ran.job.attempts)
            if verdict is not None:
                await call_hooks(hooks, verdict)

    async def open(self, client: Any) -> None:
        """Open the resources of a client, once."""
        if client in self._steps:
            return
        surroundings = client._registry.surroundings
        if not surroundings.is_empty or any(handler.resources for handler in self._handlers.of(client)):
            await self._stack.enter_async_context(surroundings.opened(self._handlers.of(client)))
        # It connects for the first step: most handlers have none.
        steps = StepCalls(lambda: Connection(client._endpoint), asyncio.get_running_loop(), WORKER, client)
        steps.most_bytes = SETTINGS.steps.bytes
        self._steps[client] = steps
        self._stack.push_async_callback(steps.close)


def _ran(row: Job, attempt: Attempt, server: KitServer) -> Ran:
    info = view(row)
    delay = None
    if row.status not in TERMINAL and (left := row.next_run_at - server.clock.time) < timedelta(days=36500):
        delay = max(timedelta(0), timedelta(milliseconds=round(left / timedelta(milliseconds=1))))
    result = None
    if info.status is JobStatus.COMPLETED and info.result_bytes is not None:
        result = result_decoder_for(attempt.job.handler.returns)(info.result_bytes)
    return Ran(_outcome(row, info), delay, result, attempt.error, info)


def _outcome(row: Job, info: JobInfo) -> str:
    if row.status is not row.status.RETRYING:
        return row.status.value.lower()
    last = row.history[-1].outcome if row.history else None
    if last is Outcome.SNOOZED:
        return "snoozed"
    if last is Outcome.SUSPENDED:
        return "waiting" if info.waits_for else "sleeping"
    return "retry"
