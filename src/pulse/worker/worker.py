"""A worker: intake, handlers, reports and heartbeats, and the order in which they stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from pulse import tuning
from pulse.errors import InvalidHandler
from pulse.handlers.context import add_job_to_log_records
from pulse.handlers.registry import Registry
from pulse.handlers.step_calls import StepCalls
from pulse.models.verdicts import VerdictHook
from pulse.supervision import supervised
from pulse.supervision.processes import signals_handled
from pulse.supervision.supervised import check_not_importing
from pulse.wire.connection import Connection
from pulse.wire.redirection import current as current_redirection
from pulse.worker.claims import Claims
from pulse.worker.clock import ServerClock
from pulse.worker.confirmer import Confirmer
from pulse.worker.declaring import Declaring, TopicDeclarations
from pulse.worker.draining import Draining
from pulse.worker.heartbeats import Heartbeats
from pulse.worker.held_jobs import Held, LeaseTerms
from pulse.worker.intake import Capacity, Intake
from pulse.worker.processes import Processes
from pulse.worker.recycling import Recycling
from pulse.worker.releases import Releases
from pulse.worker.reporter import Reporter
from pulse.worker.runners import Runners
from pulse.worker.settings import WorkerSettings, worker_id_here
from pulse.worker.time_limits import LostSlots
from pulse.worker.verdicts import Verdicts
from pulse.worker.window import Window

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

logger = logging.getLogger("pulse.worker")


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
        self._connection = connection
        self._registry = registry
        self._settings = settings
        self._lifeline = supervised.of_this_process()
        self._worker_id = worker_id_here(settings.worker_id, self._lifeline.number)
        self._recycling = Recycling(settings.max_jobs, settings.max_memory, self._due)
        handlers = [handler for topic in self._topics if (handler := registry.get(topic)) is not None]
        terms = self._terms = LeaseTerms()
        held = self._held = Held()
        woken = self._woken = threading.Event()
        window, clock = Window(settings.concurrency), ServerClock()
        loop = asyncio.get_running_loop()
        steps = self._steps = StepCalls(lambda: connection, loop, self._worker_id, client)
        self._declarations = TopicDeclarations(connection, self._worker_id, handlers, self._stop_if_failed)
        in_processes = [handler for handler in handlers if handler.options.process]
        self._processes = Processes(in_processes, client, steps, terms, are_all=in_processes == handlers)
        capacity = Capacity(connection, self._worker_id, window)
        self._releases = Releases(self._worker_id, window, held, woken, capacity.announce)
        self._verdicts = Verdicts(connection, self._worker_id, verdict_hooks)
        settled = self._verdicts.after(self._recycling.counting(held.settled))
        self._reporter = Reporter(connection, self._worker_id, window, settled)
        runners = self._runners = Runners(
            settings.concurrency,
            window,
            self._worker_id,
            terms,
            held,
            confirm=lambda job: self._confirmer.add(job),
            send_heartbeat=woken.set,
            report=self._reporter.add,
            fatal=self._stop_because,
            lost=LostSlots(
                settings.concurrency,
                settings.lost_slots_exit,
                window,
                announce=capacity.announce,
                stop=self._stop_because,
            ),
            processes=self._processes,
        )
        claims = Claims(held, registry, terms, steps, runners, self._releases, stopped=self._verdicts.ask)
        self._confirmer = Confirmer(
            connection,
            self._worker_id,
            terms,
            clock,
            held.unstarted,
            stop=claims.stop,
            recall=claims.recall,
            answered=runners.confirmed,
            later=runners.add,
        )
        self._heartbeats = Heartbeats(
            connection.endpoint,
            lambda: connection.servers.in_use,
            self._worker_id,
            terms,
            held.jobs,
            claims.stop,
            self._releases,
            woken,
            stuck=runners.time_limits.look_at_blocked_loop,
        )
        self._intake = Intake(
            connection,
            self._worker_id,
            self._topics,
            terms,
            window,
            clock,
            claims,
            steps,
            capacity,
            self._declarations,
            welcomed=self._welcomed,
            stop=self.drain,
        )
        self._stop_requested = asyncio.Event()
        self._hurry_requested = asyncio.Event()
        self._drain_seconds = settings.drain_seconds
        # Apart from other reasons to stop: a supervisor's request may come before the signal that caused it.
        self._was_signaled = False
        self._failure: BaseException | None = None
        self._declaring = Declaring(connection, declare, self._declarations, self._lifeline)
        self._lifespan = Lifespan(registry, self._topics, self._stop_requested, self._hurry_requested)

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
                self._lifeline.attached(self, self._settings.drain_seconds),
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
        self._woken.set()
        self._declarations.welcomed()
        self._declaring.welcomed.set()

    def _due(self, reason: str) -> None:
        """Let this process be replaced. Its supervisor decides when; without one the worker ends now."""
        if not self._lifeline.due(reason):
            logger.info("Worker %s drains and ends: %s.", self._worker_id, reason)
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
            self._connection,
            self._worker_id,
            self._held,
            self._runners,
            self._releases,
            self._reporter,
            self._terms,
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
        logger.info("Worker %s has stopped.", self._worker_id)
