"""Runs the handlers: what waits, what runs, and what becomes of each job."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter

from pulse import tuning
from pulse.clock import lease_clock
from pulse.context import make_current, tell_to_stop
from pulse.handlers import Registry
from pulse.held import HeldJob, LeaseTerms
from pulse.outcomes import SUCCEEDED, Cancelled, Discard, Failed, Outcome, Retry, failure
from pulse.payload import UndecodableArgs
from pulse.threads import HandlerThreads
from pulse.tracing import start_run
from pulse.v1 import pulse_pb2 as pb
from pulse.window import Window

logger = logging.getLogger("pulse.worker")


class Executor:
    """Holds jobs and runs at most `concurrency` of them at once, in the order of their arrival.

    A job is held until its result was taken or its claim is lost; `held` is what the heartbeats beat.
    """

    def __init__(
        self,
        registry: Registry,
        concurrency: int,
        terms: LeaseTerms,
        window: Window,
        worker_id: str,
        *,
        confirm: Callable[[HeldJob], None],
        report: Callable[[HeldJob], None],
        fatal: Callable[[BaseException], None],
    ) -> None:
        self.held: dict[str, HeldJob] = {}
        self._registry = registry
        self._concurrency = concurrency
        self._terms = terms
        self._window = window
        self._worker_id = worker_id
        self._confirm = confirm
        self._report = report
        self._fatal = fatal
        self._loop = asyncio.get_running_loop()
        self._threads = HandlerThreads(self._loop, concurrency)
        self._ready: deque[HeldJob] = deque()
        self._running: set[HeldJob] = set()
        self._is_stopping = False
        # Every handler begins with the contextvars of run(), not with what the handler before it left behind.
        self._contextvars = contextvars.copy_context()

    # ------------------------------------------------------------ taking

    def accept(self, assignments: Iterable[pb.JobAssignment], age_seconds: float = 0.0) -> None:
        """Take jobs that the server delivered, having claimed them so long ago."""
        lease_seconds = self._terms.lease_seconds
        lease_end = lease_clock() + lease_seconds - age_seconds
        # Such a message lay about while the event loop was blocked. Somebody else may run these jobs by now.
        is_stale = age_seconds > lease_seconds * tuning.STALE_DELIVERY
        held = self.held
        for assignment in assignments:
            known = held.get(assignment.job_id)
            if known is not None:
                if known.attempt == assignment.attempt:
                    continue  # delivered twice: the execution that stands speaks for it
                self.stop([known], "it was delivered again, as another attempt")
            handler = self._registry.get(assignment.topic)
            if handler is None:
                logger.warning(
                    "Job %s has the topic %s, which nobody serves.", assignment.job_id, assignment.topic
                )
                continue
            job = HeldJob(assignment, handler, lease_end)
            held[job.job_id] = job
            if assignment.confirm or is_stale:
                self._confirm(job)
            else:
                self.ready(job)

    def ready(self, job: HeldJob) -> None:
        """Start the job, or let it wait for its turn."""
        if self._is_stopping or len(self._running) >= self._concurrency:
            self._ready.append(job)
        else:
            self._start(job)

    def settled(self, job: HeldJob) -> None:
        """Let go of a job: its result was taken or refused, or the claim was released."""
        if self.held.get(job.job_id) is job:
            del self.held[job.job_id]

    # ------------------------------------------------------------ stopping jobs

    def find(self, claims: Iterable[pb.Claim]) -> list[HeldJob]:
        """Return the jobs that are held by these very claims."""
        found = (self.held.get(claim.job_id) for claim in claims)
        return [job for job, claim in zip(found, claims, strict=True) if job and job.attempt == claim.attempt]

    def stop(self, jobs: Iterable[HeldJob], reason: str) -> None:
        """Cancel jobs whose claim is not ours any more. Nothing is reported for them."""
        for job in jobs:
            if self.held.get(job.job_id) is not job:
                continue
            del self.held[job.job_id]
            job.stop_reason = reason
            if job.task is not None and job.outcome is None:
                logger.info("Job %s (%s) is stopped: %s.", job.job_id, job.handler.topic, reason)
            self._cancel(job)

    def _cancel(self, job: HeldJob) -> None:
        tell_to_stop(job.context)
        # A task that never began would end without running its last lines; _run looks for itself instead.
        # The task of a sync handler waits for its thread, which goes on until it looks at ctx.cancelled.
        if job.task is not None and job.has_begun and job.handler.is_async:
            job.task.cancel()

    # ------------------------------------------------------------ stopping the worker

    def stop_starting(self) -> None:
        """Start no handler any more."""
        self._is_stopping = True

    def unstarted(self) -> list[HeldJob]:
        """Return the jobs whose handler was never started."""
        return [job for job in self.held.values() if job.task is None]

    def running_tasks(self) -> set[asyncio.Task[None]]:
        """Return the tasks of the handlers that run."""
        return {job.task for job in self._running if job.task is not None and not job.task.done()}

    def cancel_running(self) -> None:
        """Cancel every handler that runs, because the worker stops."""
        for job in list(self._running):
            self._cancel(job)

    def given_back(self) -> list[HeldJob]:
        """Return the jobs whose handler was cancelled because the worker stops."""
        return [job for job in self.held.values() if job.is_given_back]

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    # ------------------------------------------------------------ running

    def _start(self, job: HeldJob) -> None:
        self._running.add(job)
        job.task = self._loop.create_task(self._run(job), name=job.job_id, context=self._contextvars.copy())

    def _start_next(self) -> None:
        ready = self._ready
        while ready and not self._is_stopping and len(self._running) < self._concurrency:
            job = ready.popleft()
            if not job.stop_reason:
                self._start(job)

    async def _run(self, job: HeldJob) -> None:
        if lease_clock() >= job.lease_end and not job.stop_reason and not self._is_stopping:
            # It waited here past its lease: the process was frozen, or no beat got through. Somebody else
            # may have completed it by now, so the server is asked first.
            self._unstart(job)
            return
        job.has_begun = True
        began = perf_counter()
        outcome: Outcome | None = None
        try:
            if not job.stop_reason:
                await self._call(job)
                outcome = SUCCEEDED
        except Exception as error:
            outcome = self._failed(job, error)
        except asyncio.CancelledError as error:
            # Cancelled from outside: by us, or by an event loop that shuts down. A handler can also
            # raise this by itself, when something that it awaits was cancelled: that is a failure.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                job.is_given_back = True
            else:
                outcome = self._failed(job, error)
        except BaseException as error:
            # SystemExit or KeyboardInterrupt: the handler wants the process to end, so it drains and ends.
            outcome = self._failed(job, error)
            self._fatal(error)
        self._running.discard(job)
        self._window.observe(perf_counter() - began)
        if job.span is not None:
            job.span.end(outcome, job.stop_reason)
        if outcome is not None and not job.stop_reason:
            job.outcome = outcome
            self._report(job)
        if self._ready:
            self._start_next()

    def _unstart(self, job: HeldJob) -> None:
        job.task = None
        self._running.discard(job)
        self._confirm(job)
        self._start_next()

    async def _call(self, job: HeldJob) -> None:
        handler, context = job.handler, job.context
        make_current(context)
        job.span = start_run(job, self._worker_id)
        arguments = handler.decode(job.assignment.payload)
        if handler.is_async:
            await handler.call(arguments, context)
            return
        result = await self._threads.run(handler.call, arguments, context)
        if inspect.isawaitable(result):
            await result  # a plain function that made a coroutine: forgetting it would look like success

    def _failed(self, job: HeldJob, error: BaseException) -> Outcome | None:
        if job.stop_reason:
            return None
        if isinstance(error, Cancelled) and job.context.cancelled:
            job.is_given_back = True
            return None
        outcome = Failed(str(error)) if isinstance(error, UndecodableArgs) else failure(error)
        if job.span is not None:
            job.span.fail(error, outcome)
        expected = isinstance(error, UndecodableArgs | Retry | Discard)
        logger.log(
            logging.INFO if isinstance(error, Retry) else logging.WARNING,
            "Job %s (%s) failed on attempt %d of %d: %s",
            job.job_id,
            job.handler.topic,
            job.attempt,
            job.assignment.max_attempts,
            outcome.error.partition("\n")[0],
            exc_info=None if expected else error,
        )
        return outcome
