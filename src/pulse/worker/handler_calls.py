"""Calls handlers: in the event loop, in a thread, or in a child process."""

from __future__ import annotations

import asyncio
import functools
import inspect
from types import CoroutineType
from typing import Any

from pulse import failpoints
from pulse.handlers.calls import Call
from pulse.handlers.context import make_current
from pulse.outcomes import SUCCEEDED, Outcome
from pulse.tracing.optional import start_run
from pulse.worker.coroutines import Begun, awaited
from pulse.worker.held_jobs import HeldJob, LeaseTerms
from pulse.worker.late_starts import in_time
from pulse.worker.limits import Limits
from pulse.worker.process_call import ProcessCall
from pulse.worker.processes import Processes
from pulse.worker.returned import succeeded
from pulse.worker.threads import HandlerThreads


class HandlerCalls:
    """The calls of one worker, and the threads and processes that they run in."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        concurrency: int,
        worker_id: str,
        terms: LeaseTerms,
        limits: Limits,
        processes: Processes,
    ) -> None:
        self._loop = loop
        self._worker_id = worker_id
        self._terms = terms
        self._limits = limits
        self._threads = HandlerThreads(loop, concurrency)
        self._processes = processes

    def close(self) -> None:
        """End the threads and processes."""
        self._threads.close()
        self._processes.close()

    @failpoints.before("worker.starting")
    def start(self, job: HeldJob) -> Begun | Outcome | None:
        """Call the handler and run it until it waits. Returns the outcome if it is done.

        Call it in the contextvars of the handler.
        """
        handler, context, assignment = job.handler, job.context, job.assignment
        make_current(context)
        job.span = start_run(assignment, self._worker_id)
        if handler.options.timeout is not None or assignment.HasField("timeout"):
            self._limits.begin(job)
        if handler.runs_in_loop:
            coroutine = handler.call(handler.decode(assignment.payload), context)
            if type(coroutine) is not CoroutineType:
                coroutine = awaited(coroutine)
        elif handler.options.process:
            coroutine = self._run_in_process(job)
        else:
            coroutine = self._run_in_thread(job, handler.call, handler.decode(assignment.payload))
        try:
            return coroutine, coroutine.send(None)
        except StopIteration as ended:
            value = ended.value
        return SUCCEEDED if value is None else succeeded(job, value, self._terms)

    async def _run_in_thread(self, job: HeldJob, call: Call, arguments: Any) -> Any:
        job.call = started = self._threads.start(in_time, job, call, arguments, job.context)
        try:
            result = await self._threads.result(started)
        finally:
            if started.is_over:  # else the event loop ends, and the thread goes on
                job.call = None
        # A plain function may return a coroutine: dropping it would look like success.
        return await result if inspect.isawaitable(result) else result

    async def _run_in_process(self, job: HeldJob) -> bytes | None:
        """Returns the result as the process has encoded it."""
        loaded = functools.partial(self._loop.call_soon_threadsafe, self._limits.restart, job)
        job.call = call = ProcessCall(self._processes, job, loaded)
        started = self._threads.start(in_time, job, call.run)
        try:
            result: bytes | None = await self._threads.result(started)
            return result
        finally:
            if started.is_over:
                job.call = None
