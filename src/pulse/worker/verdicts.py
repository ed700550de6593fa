"""Passes the verdicts on a worker's attempts to the hooks of the application.

A report is answered without the verdict: the server decides whether the job is retried, and when. The job is
read once the server has the report. Without hooks nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from pulse import tuning
from pulse.error_text import describe, in_a_line
from pulse.errors import PulseError
from pulse.handlers.signatures import is_coroutine_function
from pulse.jobs.models import job_info
from pulse.models.verdicts import Verdict, VerdictHook, verdict_of_attempt
from pulse.outcomes import Failed
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.worker.held_jobs import HeldJob

logger = logging.getLogger("pulse.worker")

Settled = Callable[[Iterable[HeldJob]], None]


async def call_hooks(hooks: Sequence[VerdictHook], verdict: Verdict) -> None:
    """Call each hook. The error of a hook is logged."""
    for hook in hooks:
        try:
            if is_coroutine_function(hook):
                await hook(verdict)
            else:
                await asyncio.to_thread(hook, verdict)
        except Exception as error:
            logger.error(
                "A hook for verdicts failed on job %s (%s): %s",
                verdict.job.id,
                in_a_line(verdict.job.topic),
                in_a_line(describe(error).partition("\n")[0]),
                exc_info=error,
            )


class Verdicts:
    """Reads jobs whose attempts failed or were canceled, and calls the hooks. At most once for an attempt."""

    def __init__(self, connection: Connection, worker_id: str, hooks: Sequence[VerdictHook]) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._hooks = hooks
        self._calls: set[asyncio.Task[None]] = set()
        self._few_at_a_time = asyncio.Semaphore(tuning.VERDICTS_AT_A_TIME)
        self._left_out = 0

    def after(self, settled: Settled) -> Settled:
        """Return the callback for reported jobs. It asks for the verdicts on those that failed."""
        if not self._hooks:
            return settled

        def settle(jobs: Iterable[HeldJob]) -> None:
            reported = list(jobs)
            settled(reported)
            for job in reported:
                if isinstance(job.outcome, Failed) and not job.stop_reason:
                    self.ask(job)

        return settle

    def ask(self, job: HeldJob) -> None:
        """Read the job soon, and call the hooks with the verdict on this attempt, if there is one."""
        if not self._hooks:
            return
        if len(self._calls) >= tuning.MOST_VERDICTS:
            self._note_left_out()
            return
        call = asyncio.create_task(self._pass_on(job.job_id, job.attempt), name="pulse-verdict")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        """Wait for hooks under way, in bounded time."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=tuning.EXIT_TIMEOUT_SECONDS)
        for call in self._calls:
            call.cancel()

    async def _pass_on(self, job_id: str, attempt: int) -> None:
        async with self._few_at_a_time:
            request, stub = pb.GetJobRequest(job_id=job_id), self._connection.stub
            try:
                response = await self._connection.keep_trying(
                    lambda seconds: stub.GetJob(request, timeout=seconds), tuning.DEFAULT_TIMEOUT_SECONDS
                )
            except PulseError as error:
                logger.warning("The verdict on job %s cannot be read: %s", job_id, error.message)
                return
            verdict = verdict_of_attempt(job_info(response.job), self._worker_id, attempt)
            if verdict is not None:
                await call_hooks(self._hooks, verdict)

    def _note_left_out(self) -> None:
        self._left_out += 1
        if self._left_out == 1:
            logger.warning(
                "Hooks for verdicts are slower than jobs fail: %d wait, and further verdicts are left out.",
                tuning.MOST_VERDICTS,
            )
