"""A worker: intake, handlers, reports and heartbeats, and the order in which they stop.

At the end its handlers finish, and their jobs are reported or released. A job that cannot be released runs
again once its lease ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pulse import failpoints, tuning
from pulse.errors import InvalidArgument, InvalidHandler, PulseError
from pulse.handlers.context import add_job_to_log_records, is_lost, records_of
from pulse.handlers.registry import Registry
from pulse.handlers.step_calls import StepCalls
from pulse.supervision import supervised
from pulse.supervision.processes import signals_handled
from pulse.supervision.supervised import check_not_importing
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.redirection import current_redirection
from pulse.worker.held_jobs import (
    ClaimedJob,
    Recycling,
    Releases,
    Shared,
    Window,
)
from pulse.worker.intake import Capacity, Claims, Declaring, Intake, TopicDeclarations
from pulse.worker.leases import Confirmer, Heartbeats
from pulse.worker.outcomes import VerdictHook, Verdicts, failed
from pulse.worker.processes import Processes
from pulse.worker.reporter import Reporter, encode_progress, in_batches, unsent_progress
from pulse.worker.runners import Runners
from pulse.worker.threads import LostSlots

# An interpreter with the SDK takes more. A smaller limit is likely a number of megabytes, not
# bytes.
SMALLEST_MEMORY = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of `run()`, apart from the handlers."""

    concurrency: int
    drain_seconds: float
    worker_id: str | None
    # The number of lost slots at which the worker stops. None means half of them.
    lost_slots_exit: int | None = None
    max_jobs: int | None = None
    max_memory: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.concurrency, int) or not 1 <= self.concurrency <= 10_000:
            raise InvalidArgument(
                f"concurrency has to be between 1 and 10000, but {self.concurrency!r} was given."
            )
        if self.lost_slots_exit is not None and (
            not isinstance(self.lost_slots_exit, int) or self.lost_slots_exit < 1
        ):
            raise InvalidArgument(
                f"lost_slots_exit has to be a number from 1, or None for half of the slots, "
                f"but {self.lost_slots_exit!r} was given."
            )
        if self.max_jobs is not None and (not isinstance(self.max_jobs, int) or self.max_jobs < 1):
            raise InvalidArgument(f"max_jobs has to be at least 1, but {self.max_jobs!r} was given.")
        if self.max_memory is not None and (
            not isinstance(self.max_memory, int) or self.max_memory < SMALLEST_MEMORY
        ):
            raise InvalidArgument(
                f"max_memory is a number of bytes from {SMALLEST_MEMORY} on (16 MiB), "
                f"but {self.max_memory!r} was given."
            )


def worker_id_here(given: str | None, process_number: int) -> str:
    """Return the name of the worker. Processes of one supervisor never share one."""
    if given is None:
        return make_worker_id()
    if not process_number:
        return given
    # With the process id: a process works beside its successor for a while.
    return f"{given}-{process_number}-{os.getpid()}"


def make_worker_id() -> str:
    """Return a unique name with the host and the process."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100] or "worker"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"


logger = logging.getLogger("pulse.worker")


# ---------------------------------------------------------------- draining


class Draining:
    """Drains a worker. `hurry_requested` ends the wait for handlers."""

    def __init__(
        self,
        shared: Shared,
        runners: Runners,
        releases: Releases,
        reporter: Reporter,
        drain_seconds: float,
        hurry_requested: asyncio.Event,
    ) -> None:
        self._shared = shared
        self._held = shared.held
        self._runners = runners
        self._releases = releases
        self._reporter = reporter
        self._drain_seconds = drain_seconds
        self._hurry_requested = hurry_requested
        self.has_given_up = False
        """True if handlers did not stop: they and their threads or processes still run."""

    async def run(self, intake_finished: Awaitable[None]) -> None:
        """Start no further handler, and return once every job is reported, released or given up."""
        # Code in the event loop has ended it: asyncio.run() cancels all tasks while it passes this error on.
        broken_by = sys.exc_info()[1]
        deadline = time.monotonic() + self._drain_seconds
        self._runners.stop_starting()
        await intake_finished
        self._releases.take(list(self._held.unstarted))
        # Including the jobs that the heartbeat thread was about to release: it ends with the worker.
        await self._release(self._held.not_begun())
        await self._finish_handlers(deadline)
        if isinstance(broken_by, SystemExit | RuntimeError):
            self._fail_interrupted(broken_by)
        # Without costing an attempt: that a worker stops is not a failure of the job.
        await self._release(self._held.interrupted())
        await self._flush_reports()

    async def _finish_handlers(self, deadline: float) -> None:
        if tasks := self._runners.running_tasks():
            handlers = "1 handler has" if len(tasks) == 1 else f"{len(tasks)} handlers have"
            logger.info("Stopping: %s %.0f s to finish.", handlers, self._drain_seconds)
            wait_seconds = max(0.0, deadline - time.monotonic())
            await wait_unless(self._hurry_requested, asyncio.wait(tasks), wait_seconds)
        if tasks := self._runners.running_tasks():
            self._runners.cancel_running()
            await asyncio.wait(tasks, timeout=tuning.CANCEL_GRACE_SECONDS)
        if (tasks := self._runners.running_tasks()) and self._runners.kill_running():
            await asyncio.wait(tasks, timeout=tuning.CANCEL_GRACE_SECONDS)
        if stubborn := self._runners.running_tasks():
            self.has_given_up = True
            what = (
                "1 handler did not stop; its job runs"
                if len(stubborn) == 1
                else (f"{len(stubborn)} handlers did not stop; their jobs run")
            )
            logger.warning("%s again once the lease ends.", what)

    def _fail_interrupted(self, error: BaseException) -> None:
        """Fail the jobs that ran when code ended the event loop. A handler may have ended it."""
        for job in self._held.interrupted():
            if not (job.context.cancelled or is_lost(job.context)):
                with records_of(job.context):
                    job.outcome = failed(job, error)
                if job.outcome is not None:
                    job.is_interrupted = False
                    self._reporter.add(job)

    async def _flush_reports(self) -> None:
        # After a lease, a server that can be reached may have assigned the jobs to other workers.
        flushed = asyncio.ensure_future(self._reporter.flushed())
        await wait_unless(self._hurry_requested, asyncio.wait({flushed}), self._shared.terms.lease_seconds)
        await asyncio.wait({flushed}, timeout=tuning.CANCEL_GRACE_SECONDS)
        flushed.cancel()

    async def _release(self, jobs: list[ClaimedJob]) -> None:
        await release_all(self._shared, jobs, self._release_seconds)

    def _release_seconds(self) -> float:
        is_hurried = self._hurry_requested.is_set()
        return tuning.CANCEL_GRACE_SECONDS if is_hurried else tuning.RELEASE_TIMEOUT_SECONDS


async def wait_unless(event: asyncio.Event, work: Coroutine[Any, Any, Any], timeout_seconds: float) -> None:
    """Wait for the work to end, for the timeout, or for the event."""
    waited = asyncio.ensure_future(work)
    cut_short = asyncio.ensure_future(event.wait())
    await asyncio.wait({waited, cut_short}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    waited.cancel()
    cut_short.cancel()


@failpoints.before("worker.releasing")
async def release_all(shared: Shared, jobs: list[ClaimedJob], timeout_seconds: Callable[[], float]) -> None:
    """Release the jobs in requests of a bounded size. Each request has the timeout.

    The jobs of each request are settled, even if they could not be released.
    """
    for some in in_batches(jobs, tuning.CLAIMS_PER_RELEASE):
        await _release_or_warn(shared, some, timeout_seconds)
        for job in some:
            job.stop_reason = "it was released"
        shared.held.settled(some)


async def _release_or_warn(
    shared: Shared, jobs: Sequence[ClaimedJob], timeout_seconds: Callable[[], float]
) -> None:
    """Release the jobs. Retry jobs with a locked row until the timeout."""
    began = time.monotonic()
    while True:
        reported = [unsent_progress(job) for job in jobs]
        request = pb.ReleaseRequest(
            worker_id=shared.worker_id,
            claims=[job.claim() for job in jobs],
            progress=[encode_progress(one, index) for index, one in enumerate(reported) if one is not None],
        )
        try:
            response = await shared.connection.call(
                shared.connection.stub.Release, request, timeout_seconds=timeout_seconds()
            )
        except PulseError as error:
            return _warn_unreleased(jobs, error.message)
        locked = {claim.job_id for claim in response.locked}
        jobs = [job for job in jobs if job.job_id in locked]
        if not jobs:
            return None
        if time.monotonic() >= began + timeout_seconds():
            return _warn_unreleased(jobs, "another session of the database has locked their rows.")
        await asyncio.sleep(tuning.RELEASE_AGAIN_SECONDS)


def _warn_unreleased(jobs: Sequence[ClaimedJob], reason: str) -> None:
    logger.warning(
        "%d jobs could not be released, they run again once their leases end: %s", len(jobs), reason
    )


# ---------------------------------------------------------------- lifespan
# Holds the resources of a worker open, from before its first job until after its last handler.


class Lifespan:
    """Opens the resources of a worker, runs it, and closes them."""

    def __init__(
        self, registry: Registry, topics: Sequence[str], stop: asyncio.Event, hurry: asyncio.Event
    ) -> None:
        """`stop` ends the opening. `hurry` ends the closing, after a moment."""
        self._surroundings = registry.surroundings
        self._handlers = [handler for handler in map(registry.get, topics) if handler is not None]
        self._stop = stop
        self._hurry = hurry
        self._is_open = asyncio.Event()
        self._may_close = asyncio.Event()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open, work, close. Raises ResourceFailed if opening fails; returns if it is stopped."""
        if not self._surroundings.has_resources:
            async with self._surroundings.opened(self._handlers):
                await work()
            return
        # In a separate task: the task that enters an async context manager has to exit it.
        holding = asyncio.create_task(self._hold(), name="pulse-resources")
        try:
            await self._first_of(holding, self._is_open, self._stop)
            if self._is_open.is_set():
                await work()
            elif not holding.done():
                holding.cancel()  # it was stopped while it opened
        except BaseException:
            if not self._is_open.is_set():
                holding.cancel()
            await self._close(holding)
            raise
        await self._close(holding)
        if not holding.cancelled() and (error := holding.exception()) is not None:
            raise error

    async def _hold(self) -> None:
        async with self._surroundings.opened(self._handlers):
            self._is_open.set()
            await self._may_close.wait()

    async def _close(self, holding: asyncio.Task[None]) -> None:
        self._may_close.set()
        while not holding.done():
            try:
                await self._first_of(holding, self._hurry)
            except asyncio.CancelledError:  # run() was canceled for the second time
                self._hurry.set()
            if self._hurry.is_set() and not holding.done():
                await asyncio.wait({holding}, timeout=tuning.CANCEL_GRACE_SECONDS)
                if not holding.done():
                    holding.cancel()
                    await asyncio.wait({holding}, timeout=tuning.CANCEL_GRACE_SECONDS)
                    logger.warning("The resources of the worker could not be closed in time.")
                    return
        if not holding.cancelled():
            holding.exception()  # `run` raises it, unless `run` raises another error

    async def _first_of(self, holding: asyncio.Task[None], *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait({holding, *waits}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


# ---------------------------------------------------------------- worker


class Worker:
    """Runs the handlers of a registry until `stop`. Runs once."""

    def __init__(
        self,
        connection: Connection,
        registry: Registry,
        settings: WorkerSettings,
        topics: Iterable[str] | None = None,
        *,
        declare: Callable[[Connection], Coroutine[Any, Any, None]],
        client: object,
        verdict_hooks: Sequence[VerdictHook] = (),
    ) -> None:
        """Serve the topics, or all topics with a handler. Raises InvalidHandler for others.

        `declare` runs next to the handlers. Its error ends the run. Child processes import
        `client`. The hooks learn what becomes of attempts that do not succeed.
        """
        self._topics = registry.select(topics)
        self._registry = registry
        self._drain_seconds = settings.drain_seconds
        self._stop_requested = asyncio.Event()
        self._hurry_requested = asyncio.Event()
        # Apart from other reasons to stop: a supervisor's request may come before the signal that caused it.
        self._was_signaled = False
        self._failure: BaseException | None = None
        self._lifeline = supervised.of_this_process()
        self._lifespan = Lifespan(registry, self._topics, self._stop_requested, self._hurry_requested)
        worker_id = worker_id_here(settings.worker_id, self._lifeline.number)
        self._shared = Shared(connection, worker_id, Window(settings.concurrency))
        self._recycling = Recycling(settings.max_jobs, settings.max_memory, self._due)
        self._verdicts = Verdicts(self._shared, verdict_hooks)
        self._steps = StepCalls(lambda: connection, asyncio.get_running_loop(), worker_id, client)
        handlers = [handler for topic in self._topics if (handler := registry.get(topic)) is not None]
        self._declarations = TopicDeclarations(self._shared, handlers, self._stop_if_failed)
        self._declaring = Declaring(connection, declare, self._declarations, self._lifeline)
        in_processes = [handler for handler in handlers if handler.options.process]
        self._processes = Processes(
            in_processes, client, self._steps, self._shared.terms, are_all=in_processes == handlers
        )
        self._make_parts(settings)

    def _make_parts(self, settings: WorkerSettings) -> None:
        """Make the parts that a job passes through, from its delivery to its report."""
        shared = self._shared
        capacity = Capacity(shared)
        settled = self._verdicts.after(self._recycling.counting(shared.held.settled))
        self._reporter = Reporter(shared, settled)
        self._releases = Releases(shared, capacity.announce)
        lost_slots = LostSlots(
            shared.window, settings.lost_slots_exit, announce=capacity.announce, stop=self._stop_because
        )
        self._runners = Runners(
            shared,
            confirm=lambda job: self._confirmer.add(job),
            report=self._reporter.add,
            fatal=self._stop_because,
            lost=lost_slots,
            processes=self._processes,
        )
        claims = Claims(
            shared, self._registry, self._steps, self._runners, self._releases, stopped=self._verdicts.ask
        )
        self._confirmer = Confirmer(
            shared,
            stop=claims.stop,
            recall=claims.recall,
            answered=self._runners.confirmed,
            later=self._runners.add,
        )
        self._heartbeats = Heartbeats(
            shared, claims.stop, self._releases, stuck=self._runners.time_limits.look_at_blocked_loop
        )
        self._intake = Intake(
            shared,
            self._topics,
            claims,
            self._steps,
            capacity,
            self._declarations,
            welcomed=self._welcomed,
            stop=self.drain,
        )

    async def run(self, handle_signals: bool) -> None:
        """Run until a signal, a cancellation, or a refusal by the server. Drain, then return."""
        if not len(self._registry):
            raise InvalidHandler('There is nothing to run: import a module that has a @p.job("topic") first.')
        if self._registry.is_serving:
            raise InvalidHandler("run() is already running for these handlers.")
        check_not_importing()
        self._registry.serve(True)
        add_job_to_log_records()
        try:
            with (
                signals_handled(self.stop, handle_signals),
                self._lifeline.attached(self, self._drain_seconds),
            ):
                await self._lifespan.run(self._work())
        finally:
            self._processes.close()
            self._registry.serve(False)

    def _work(self) -> Callable[[], Coroutine[Any, Any, None]]:
        redirection = current_redirection()
        return self._run if redirection is None or redirection.runs_workers else self._idle

    async def _idle(self) -> None:
        """Take no job: a test runs the jobs itself."""
        await self._stop_requested.wait()

    async def _run(self) -> None:
        canceled: asyncio.CancelledError | None = None
        self._runners.prepare()
        self._heartbeats.start()
        self._recycling.start()
        checking = asyncio.create_task(self._processes.check_in_thread(), name="pulse-check")
        intake = asyncio.create_task(self._take_jobs(checking), name="pulse-intake")
        intake.add_done_callback(self._stop_if_failed)
        # In a separate task: a server that is slow to declare schedules must not delay the jobs.
        declaring = asyncio.create_task(self._declare(checking), name="pulse-declare")
        declaring.add_done_callback(self._stop_if_failed)
        announcing = asyncio.create_task(self._declaring.announce(declaring), name="pulse-announce")
        try:
            await self._stop_requested.wait()
        except asyncio.CancelledError as error:
            canceled = error
        announcing.cancel()
        checking.cancel()
        declaring.cancel()
        self._declarations.close()
        self._recycling.close()
        draining = asyncio.create_task(self._drain(intake), name="pulse-drain")
        while not draining.done():
            try:
                await asyncio.wait({draining})
            except asyncio.CancelledError as error:
                canceled = error
                self._hurry_requested.set()
        if canceled is not None:
            raise canceled
        await draining
        if self._failure is not None:
            raise self._failure

    async def _declare(self, checking: asyncio.Task[None]) -> None:
        await asyncio.shield(checking)  # code that cannot run its handlers declares nothing
        await self._declaring.run()

    async def _take_jobs(self, checking: asyncio.Task[None]) -> None:
        # A process imports the application, which takes long. Other handlers need not wait for that.
        if self._processes.are_all:
            await asyncio.shield(checking)
        await self._intake.run()

    # ------------------------------------------------------------ stopping

    def stop(self) -> None:
        """Drain and return from run(). The second call does not wait for handlers."""
        if self._was_signaled:
            self._hurry_requested.set()
        self._was_signaled = True
        self._stop_requested.set()

    def drain(self, within_seconds: float | None = None) -> None:
        """Drain and return from run(). Further calls change nothing.

        `within_seconds` is the time that handlers have, if that is less than the drain timeout.
        """
        if within_seconds is not None and not self._stop_requested.is_set():
            self._drain_seconds = min(self._drain_seconds, within_seconds)
        self._stop_requested.set()

    def hurry(self) -> None:
        """Drain without waiting for handlers."""
        self._hurry_requested.set()
        self._stop_requested.set()

    def _welcomed(self) -> None:
        self._shared.woken.set()
        self._declarations.welcomed()
        self._declaring.welcomed.set()

    def _due(self, reason: str) -> None:
        """Let this process be replaced. Its supervisor decides when; without one the worker ends now."""
        if not self._lifeline.due(reason):
            logger.info("Worker %s drains and ends: %s.", self._shared.worker_id, reason)
            self.drain()

    def _stop_if_failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop_because(error)

    def _stop_because(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._stop_requested.set()

    async def _drain(self, intake: asyncio.Task[None]) -> None:
        draining = Draining(
            self._shared,
            self._runners,
            self._releases,
            self._reporter,
            self._drain_seconds,
            self._hurry_requested,
        )
        try:
            await draining.run(self._intake.finish(intake))
            if not draining.has_given_up:
                self._lifeline.send("drained")
        finally:
            # Last: until here every held job keeps its lease.
            self._heartbeats.stop()
            self._runners.close()
            await self._confirmer.close()
            await self._reporter.close()
            await self._verdicts.close()
            await self._steps.close()
        logger.info("Worker %s has stopped.", self._shared.worker_id)
