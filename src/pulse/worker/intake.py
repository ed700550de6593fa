"""Receives jobs from the server: one stream, opened again whenever it ends. Stops jobs whose claim is lost.

When it connects, a worker declares its schedules and the settings of its topics. The server applies them also
when no worker is connected: after a lost lease, and to jobs of other programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from pulse import failpoints, tuning
from pulse.error_text import in_a_line
from pulse.errors import InternalError, PulseError, ResourceExhausted, Unavailable
from pulse.handlers.handler import Handler, HandlerOptions
from pulse.handlers.registry import Registry
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.workflows import completes_in_transaction
from pulse.installation import version
from pulse.supervision.processes import LAST_EXIT_VARIABLE
from pulse.supervision.supervised import Lifeline, Unsupervised
from pulse.topic_settings import Backoff, Entries
from pulse.topics import entries_message
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff
from pulse.wire.streams import StreamError, reconnecting_stream
from pulse.worker.held_jobs import (
    ClaimedJob,
    Releases,
    Shared,
    lease_clock,
    memory_bytes,
)
from pulse.worker.runners import Runners

logger = logging.getLogger("pulse.worker")

# Of the later tries of a declaration. A server that is gone is noticed by the connection.
LONGEST_TRY_SECONDS = 60.0

# Errors that a later try may not meet.
_TEMPORARY = (Unavailable, InternalError, ResourceExhausted)


class TopicDeclarations:
    """Declares the settings of the worker's topics once it is connected, before its first job.

    Declares limits again each time the worker reconnects.
    """

    def __init__(
        self, shared: Shared, handlers: Sequence[Handler], ended: Callable[[asyncio.Task[None]], None]
    ) -> None:
        """`ended` gets the task of each later declaration."""
        self._connection = shared.connection
        self._worker_id = shared.worker_id
        self._handlers = handlers
        self._ended = ended
        self.in_force = asyncio.Event()
        """Set once all settings are declared."""
        self._has_limits = any(handler.options.limits for handler in handlers)
        self._again: asyncio.Task[None] | None = None

    async def declare(self) -> None:
        """Declare all settings. Raises a PulseError if the server refuses them."""
        await declare_topics(self._connection, self._worker_id, self._handlers)
        self.in_force.set()

    @property
    def are_awaited(self) -> bool:
        """Whether no job may start yet, because a handler has limits that are not in force."""
        return self._has_limits and not self.in_force.is_set()

    def welcomed(self) -> None:
        """The worker is connected, for the first time or again."""
        if self._has_limits and self.in_force.is_set():
            # The servers forget the limits of a worker that was away for long.
            self.close()
            self._again = asyncio.create_task(self.declare(), name="pulse-declare")
            self._again.add_done_callback(self._ended)

    def close(self) -> None:
        """Give up a later declaration that is under way."""
        if self._again is not None:
            self._again.cancel()


async def declare_topics(connection: Connection, worker_id: str, handlers: Sequence[Handler]) -> None:
    """Declare settings; retry until the server answers. A handler without options removes its own.

    Raises a PulseError if the server refuses them. A server of a version without declarations is an
    error only if a handler has limits. Otherwise the worker applies the options that it can, and
    the server its defaults.
    """
    declared = [declared_topic(handler) for handler in handlers]
    for begin in range(0, len(declared), tuning.TOPICS_PER_DECLARATION):
        some = declared[begin : begin + tuning.TOPICS_PER_DECLARATION]
        answer = await _keep_trying(connection, pb.DeclareTopicsRequest(worker_id=worker_id, topics=some))
        if answer is None:
            if limited := [handler.topic for handler in handlers if handler.options.limits]:
                raise PulseError(
                    f"pulsed at {connection.endpoint.address} is of a version without limits, so those of "
                    f"{limited[0]} would not hold: upgrade it, or remove them from the handler."
                )
            if any(map(_declares_something, declared)):
                logger.warning(
                    "pulsed at %s is of a version without settings of topics: upgrade it, so that retries "
                    "and time limits of handlers hold there too.",
                    connection.endpoint.address,
                )
            return
        for replaced in answer.replaced:
            logger.warning(
                "The settings of %s that worker %s declared are replaced by those of worker %s: they differ. "
                "The newest hold; run the same code in all workers of a topic.",
                in_a_line(replaced.topic),
                in_a_line(replaced.declared_by),
                worker_id,
            )


def declared_topic(handler: Handler) -> pb.DeclaredTopic:
    """Return the part of the handler's options that the server applies, for its topic."""
    return pb.DeclaredTopic(topic=handler.topic, entries=entries_message(declared_entries(handler.options)))


def declared_entries(options: HandlerOptions) -> Entries:
    """Return the options that are entries of the settings of a topic."""
    entries = {
        "max_attempts": options.max_attempts,
        # A function decides in the worker. The server could not call it.
        "backoff": options.retry if isinstance(options.retry, Backoff) else None,
        "attempt_timeout": options.timeout,
        **options.limits,
    }
    return {name: value for name, value in entries.items() if value is not None}


def _declares_something(declared: pb.DeclaredTopic) -> bool:
    return bool(declared.entries.ByteSize())


async def _keep_trying(
    connection: Connection, request: pb.DeclareTopicsRequest
) -> pb.DeclareTopicsResponse | None:
    is_logged = False
    seconds = tuning.TRY_TIMEOUT_SECONDS
    async for _ in JitteredBackoff(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS):
        answer = await _try(connection, request, seconds)
        # With a slow database a declaration of many limits takes longer than a try: no job would start.
        seconds = min(2 * seconds, LONGEST_TRY_SECONDS)
        if not isinstance(answer, PulseError):
            return answer
        # Nothing is missing if nothing is declared; that no server answers is logged by the intake.
        if not is_logged and any(map(_declares_something, request.topics)):
            logger.warning("Topics are not declared yet, trying until they are: %s", answer.message)
            is_logged = True
    return None


async def _try(
    connection: Connection, request: pb.DeclareTopicsRequest, seconds: float
) -> pb.DeclareTopicsResponse | PulseError | None:
    """Declare once. Returns the answer, None if the server has no such RPC, or an error to retry."""
    try:
        return await connection.try_once(connection.stub.DeclareTopics, request, seconds)
    except grpc.aio.AioRpcError as failed:
        if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        error = connection.translate(failed)
        if isinstance(error, _TEMPORARY):
            return error
        raise error from None


class Declaring:
    """Declares schedules and settings, and reports to the supervisor how far the process is."""

    def __init__(
        self,
        connection: Connection,
        schedules: Callable[[Connection], Coroutine[Any, Any, None]],
        topics: TopicDeclarations,
        lifeline: Lifeline | Unsupervised,
    ) -> None:
        """`schedules` declares the schedules of the application."""
        self._connection = connection
        self._schedules = schedules
        self._topics = topics
        self._lifeline = lifeline
        self.welcomed = asyncio.Event()
        """Set once a server has accepted the worker."""

    async def run(self) -> None:
        """Declare all. Raises a PulseError if the server refuses something."""
        # Schedules first: code that the server refuses leaves the settings of the code before it alone. A
        # server that does not answer must not keep handlers with limits from their first job.
        is_declared = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tuning.DECLARE_SECONDS):
                await self._schedules(self._connection)
                is_declared = True
        # Declarations of a worker count once it is connected.
        await self.welcomed.wait()
        await self._topics.declare()
        if not is_declared:
            await self._schedules(self._connection)

    async def announce(self, declaring: asyncio.Task[None]) -> None:
        """Report that the process is connected, and ready once its declarations are accepted."""
        await self.welcomed.wait()
        self._lifeline.send("connected")
        await asyncio.wait({declaring})
        if declaring.exception() is None:
            self._lifeline.send("ready")


# ---------------------------------------------------------------- claims


class Claims:
    """The jobs that this worker holds.

    A job is held until the server has its result or the claim is lost. It is in `unstarted` until its handler
    starts, or it is stopped or released: the thread that removes it owns it.
    """

    def __init__(
        self,
        shared: Shared,
        registry: Registry,
        steps: StepCalls,
        runners: Runners,
        releases: Releases,
        stopped: Callable[[ClaimedJob], None] = lambda _job: None,
    ) -> None:
        """`stopped` receives each job whose claim is lost."""
        self.held = shared.held.jobs
        self.unstarted = shared.held.unstarted
        self._registry = registry
        self._terms = shared.terms
        self._steps = steps
        self._runners = runners
        self._release_soon = releases.add
        self._stopped = stopped

    # ------------------------------------------------------------ deliveries

    @failpoints.before("worker.received")
    def accept(self, assignments: Iterable[pb.JobAssignment], age_seconds: float = 0.0) -> None:
        """Take delivered jobs. `age_seconds` is the time since they were claimed."""
        now = lease_clock()
        lease_end = now + self._terms.lease_seconds - age_seconds
        start_by = min(now + tuning.START_WITHIN_SECONDS - age_seconds, lease_end)
        release_by = now + tuning.HOLD_SECONDS
        held, handler_of, steps = self.held, self._registry.get, self._steps
        ready: list[ClaimedJob] = []
        for assignment in assignments:
            job_id = assignment.job_id
            known = held.get(job_id)
            if known is not None and not known.stop_reason:
                if known.run == assignment.run:
                    continue  # delivered twice: the first delivery runs
                if known in ready:  # it came with the same message
                    ready.remove(known)
                self.stop([known], "it was claimed again")
            handler = handler_of(assignment.topic)
            if handler is None:
                logger.warning(
                    "Job %s has the topic %s, which has no handler.", job_id, in_a_line(assignment.topic)
                )
                continue
            job = ClaimedJob(job_id, assignment, handler, lease_end, start_by, release_by, steps)
            held[job_id] = job
            ready.append(job)
        self.unstarted.update(ready)
        self._runners.add(ready)

    def recall(self, topics: Collection[str]) -> None:
        """Release unstarted jobs of the topics; of all topics if `topics` is empty."""
        self._release_soon([job for job in list(self.unstarted) if not topics or job.handler.topic in topics])

    def confirm_unstarted(self) -> None:
        """Confirm every job before it starts. For a lost stream: the server may have released the jobs."""
        for job in list(self.unstarted):
            job.confirm = True

    # ------------------------------------------------------------ stopping jobs

    def find(self, claims: Iterable[pb.Claim]) -> list[ClaimedJob]:
        """Return the held jobs of the claims."""
        found = (self.held.get(claim.job_id) for claim in claims)
        return [job for job, claim in zip(found, claims, strict=True) if job and job.run == claim.run]

    def stop(self, jobs: Iterable[ClaimedJob], reason: str) -> None:
        """Cancel jobs whose claim is lost. Nothing is reported for them.

        A handler that has called `ctx.complete` goes on: its transaction may have been committed, which also
        ends the claim. If the claim was lost before, the transaction is refused.
        """
        for job in jobs:
            if self.held.get(job.job_id) is not job or completes_in_transaction(job.context):
                continue
            del self.held[job.job_id]
            self.unstarted.discard(job)
            job.stop_reason = reason
            if job.has_begun and job.outcome is None:
                logger.info("Job %s (%s) is stopped: %s.", job.job_id, job.handler.topic, reason)
            self._runners.cancel(job)
            self._stopped(job)


# A retry cannot succeed.
_FOR_GOOD = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED})
# A worker whose first stream is refused has wrong credentials, and ends with the error. A worker that was
# connected before may have running jobs, and its user may be restored: it keeps trying.
_NOT_LET_IN = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


def _facts() -> pb.WorkerFacts:
    return pb.WorkerFacts(
        host=socket.gethostname(),
        version=version(),
        memory_bytes=memory_bytes(),
        last_exit=os.environ.get(LAST_EXIT_VARIABLE, ""),
    )


# ---------------------------------------------------------------- the stream


class Capacity:
    """Sends the number of jobs that the worker can hold."""

    def __init__(self, shared: Shared) -> None:
        self._connection = shared.connection
        self._worker_id = shared.worker_id
        self._window = shared.window
        self._sending: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Send the capacity now, if it has changed."""
        if capacity := self._window.changed_size():
            self._sending = asyncio.create_task(self.send(capacity))

    async def send(self, capacity: int) -> None:
        """Send this capacity, once."""
        request = pb.ReportResultsRequest(worker_id=self._worker_id, capacity=capacity)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._connection.try_once(
                self._connection.stub.ReportResults, request, tuning.QUIET_LONGEST_SECONDS
            )
            self._window.acknowledged(capacity)


class Intake:
    """Keeps a stream to the server open and takes deliveries."""

    def __init__(
        self,
        shared: Shared,
        topics: Sequence[str],
        claims: Claims,
        steps: StepCalls,
        capacity: Capacity,
        declarations: TopicDeclarations,
        *,
        welcomed: Callable[[], None],
        stop: Callable[[], None],
    ) -> None:
        """While `declarations` are awaited the worker is connected and receives no jobs.

        `stop` is called when an operator stops the worker.
        """
        self._connection = shared.connection
        self._servers = shared.connection.servers
        # The server of the stream.
        self._at, self._address = 0, shared.connection.endpoint.address
        self._worker_id = shared.worker_id
        self._run_id = os.urandom(8).hex()
        self._topics = topics
        self._terms = shared.terms
        self._window = shared.window
        self._claims = claims
        self._steps = steps
        self._capacity = capacity
        self._declarations = declarations
        self._welcomed = welcomed
        self._stop = stop
        self._is_announced = True
        self._clock = shared.clock
        self._is_connected = False
        self._was_let_in = False
        self._is_finishing = False
        self._logged: str | None = None
        self._last_message_at = 0.0
        self._asked_at = 0.0
        self._is_draining = False

    async def run(self) -> None:
        """Receive jobs until canceled. Raises a PulseError if the server refuses this worker for good."""
        self._servers.stays = True
        going_home = asyncio.create_task(self._go_home(), name="pulse-home")
        try:
            if self._declarations.are_awaited:
                await self._connect_idle()
            await self._receive()
        finally:
            self._servers.stays = False
            going_home.cancel()

    async def _go_home(self) -> None:
        """Move to the home server of this client whenever it is back."""
        while self._servers.are_several and not self._is_finishing:
            await asyncio.sleep(tuning.HOME_FIRST_SECONDS)
            if self._is_connected and self._servers.may_go_home():
                # Jobs on their way over the old stream have to arrive: else they wait until their leases end.
                self._window.close()
                await self._capacity.send(1)
                await self._wait_until_quiet(lambda: self._is_connected)
                if self._is_finishing:
                    return
                self._window.open()
                if self._servers.may_go_home():
                    self._servers.go_home()
                else:
                    # Home is away again. The server has the smallest capacity, also if its answer was lost.
                    self._window.acknowledged(1)
                    self._capacity.announce()

    async def _connect_idle(self) -> None:
        """Be connected without jobs until the limits are in force. Another stream follows then."""
        idle = asyncio.create_task(self._receive(), name="pulse-idle")
        begun = asyncio.create_task(self._declarations.in_force.wait())
        try:
            await asyncio.wait({idle, begun}, return_when=asyncio.FIRST_COMPLETED)
            if idle.done():
                idle.result()
        finally:
            for task in (idle, begun):
                task.cancel()
            await asyncio.wait({idle, begun})
        self._is_announced = not self._is_connected  # else the next welcome is of the same connection

    async def _receive(self) -> None:
        stream = reconnecting_stream(
            self._connection, self._open, self._lost, is_last=lambda message: message.draining
        )
        async with contextlib.aclosing(stream):
            async for message in stream:
                self._take(message)

    async def finish(self, task: asyncio.Task[None]) -> None:
        """End the stream without losing deliveries: ask for no more, wait until it is quiet, then close it.

        A job that was sent but never read would have to wait until its lease expires.
        """
        self._is_finishing = True
        self._window.close()
        if self._is_connected:
            # The smallest capacity: with it the server sends at most one more job.
            await self._capacity.send(1)
            await self._wait_until_quiet(lambda: not task.done() and self._is_connected)
        task.cancel()
        await asyncio.wait({task})

    async def _wait_until_quiet(self, is_open: Callable[[], bool]) -> None:
        deadline = time.monotonic() + tuning.QUIET_LONGEST_SECONDS
        quiet_since = time.monotonic()
        while is_open():
            now = time.monotonic()
            quiet_since = max(quiet_since, self._last_message_at)
            if now >= deadline or now - quiet_since >= tuning.QUIET_SECONDS:
                return
            await asyncio.sleep(quiet_since + tuning.QUIET_SECONDS - now)

    # ------------------------------------------------------------ the stream

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.StreamJobsRequest, pb.StreamJobsResponse] | None:
        if self._is_finishing:
            return None
        self._asked_at = lease_clock()
        self._is_draining = False
        call = self._connection.open_stream(
            self._connection.stub.StreamJobs,
            pb.StreamJobsRequest(
                topics=self._topics,
                worker_id=self._worker_id,
                capacity=self._window.announce(),
                held=[job.claim() for job in self._claims.held.values()],
                run_id=self._run_id,
                concurrency=self._window.concurrency,
                idle=self._declarations.are_awaited,
                facts=_facts(),
                can_stop=True,
            ),
        )
        self._at, self._address = self._servers.at, self._servers.in_use.address
        return call

    async def _lost(self, error: StreamError, wait_seconds: float) -> None:
        """Log that the stream ended. Raises a PulseError if the server refuses this worker for good."""
        has_moved = self._at != self._servers.at
        if not isinstance(error, grpc.aio.AioRpcError):
            ended = "it is shutting down" if self._is_draining else "it ended the stream"
            reason = "it accepted the connection and sent nothing" if error else ended
            self._note_lost(reason, None, is_expected=has_moved)
            self._servers.leave(self._at, reason)
            return
        code = error.code()
        translated = await self._connection.explain(error)
        if code in _FOR_GOOD or (code in _NOT_LET_IN and not self._was_let_in):
            raise translated
        self._note_lost(translated.message, code if code in _NOT_LET_IN else None, is_expected=has_moved)
        if code is grpc.StatusCode.UNAVAILABLE:
            # Also when pulsed refuses the stream, because it stops or has no database.
            self._servers.leave(self._at, translated.message)

    def _take(self, message: pb.StreamJobsResponse) -> None:
        self._last_message_at = time.monotonic()
        self._is_draining = message.draining
        if not self._is_connected:
            self._note_connected()
        if message.HasField("welcome"):
            self._clock.welcome(self._asked_at, message.clock_seconds, message.welcome.clock_id)
        age_seconds = self._clock.age_seconds(message.clock_seconds) if message.clock_seconds else 0.0
        if message.HasField("completion_key"):
            self._steps.completion_key = message.completion_key
        if message.HasField("welcome"):
            welcome = message.welcome
            lease_seconds = welcome.lease_ttl.ToTimedelta().total_seconds()
            heartbeat_seconds = welcome.heartbeat_interval.ToTimedelta().total_seconds()
            self._terms.lease_seconds = lease_seconds or self._terms.lease_seconds
            self._terms.heartbeat_seconds = heartbeat_seconds or self._terms.heartbeat_seconds
            self._terms.max_result_bytes = welcome.max_result_bytes
            self._steps.most_bytes = welcome.steps.bytes
            if self._is_announced:
                self._welcomed()
            self._is_announced = True
        # A server that does not know idle streams sends jobs. The next stream releases them: it does not hold
        # them.
        if message.assignments and not self._declarations.are_awaited:
            self._claims.accept(message.assignments, age_seconds)
        if message.stop:
            self._claims.stop(
                self._claims.find(message.stop), "the server reports that it was canceled, or is lost"
            )
        if message.HasField("recall"):
            self._claims.recall(message.recall.topics)
        if message.stop_worker and not self._is_finishing:
            logger.info("An operator stops worker %s.", self._worker_id)
            self._stop()

    def _note_connected(self) -> None:
        self._is_connected = self._was_let_in = True
        self._logged = None
        logger.info(
            "Connected to pulsed at %s as %s: %s.", self._address, self._worker_id, ", ".join(self._topics)
        )

    def _note_lost(self, reason: str, refusal: grpc.StatusCode | None, *, is_expected: bool) -> None:
        """Log that the stream ended, unless this worker goes to another server, which is logged then."""
        self._claims.confirm_unstarted()
        was_connected, self._is_connected = self._is_connected, False
        if refusal is not None:
            event = "No longer let in by"
        else:
            event = "Lost the connection to" if was_connected else "Cannot connect to"
        # Once per outage, and once more if the server is back and refuses the worker.
        is_known = self._logged is not None and (refusal is None or self._logged == event)
        if is_expected or self._is_finishing or is_known:
            return
        self._logged = event
        logger.warning("%s pulsed at %s, trying until it answers: %s", event, self._address, reason)
