"""Receives jobs from the server: one stream, opened again whenever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence

import grpc
import grpc.aio

from pulse import tuning
from pulse.handlers.step_calls import StepCalls
from pulse.installation import version
from pulse.supervision.processes import LAST_EXIT_VARIABLE
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.streams import StreamError, reconnecting_stream
from pulse.worker.claims import Claims
from pulse.worker.clock import ServerClock, lease_clock
from pulse.worker.declaring import TopicDeclarations
from pulse.worker.held_jobs import LeaseTerms
from pulse.worker.recycling import memory_bytes
from pulse.worker.window import Window

logger = logging.getLogger("pulse.worker")

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


class Capacity:
    """Sends the number of jobs that the worker can hold."""

    def __init__(self, connection: Connection, worker_id: str, window: Window) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._window = window
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
        connection: Connection,
        worker_id: str,
        topics: Sequence[str],
        terms: LeaseTerms,
        window: Window,
        clock: ServerClock,
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
        self._connection = connection
        self._servers = connection.servers
        # The server of the stream.
        self._at, self._address = 0, connection.endpoint.address
        self._worker_id = worker_id
        self._run_id = os.urandom(8).hex()
        self._topics = topics
        self._terms = terms
        self._window = window
        self._claims = claims
        self._steps = steps
        self._capacity = capacity
        self._declarations = declarations
        self._welcomed = welcomed
        self._stop = stop
        self._is_announced = True
        self._clock = clock
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
