"""Calls of one client: a session that opens with the first call, and a timeout for each call.

During an outage of pulsed, calls fail fast. In the thread of a `def` handler verbs block: a coroutine would
be lost, and the new job with it. They return the result in a form that can also be awaited:
`return job.enqueue(…)` works too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed, PulseError, Unavailable
from pulse.jobs.handles import Awaiting, JobHandle
from pulse.jobs.submissions import Submitter
from pulse.messages import check_duration
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.endpoint import Endpoint
from pulse.wire.redirection import Redirection, current_redirection
from pulse.wire.servers import refuse_forked_child

if TYPE_CHECKING:
    from pulse.v1.pulse_pb2_grpc import PulseServiceAsyncStub

Result = TypeVar("Result")

current_context: ContextVar[Any] = ContextVar("pulse.current")
"""The context of the job whose handler runs here. Unset elsewhere."""


def run_in_loop(coroutine: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    """Run the coroutine in the loop of another thread, and block until it is done.

    Raises ClientClosed if the loop ends first.
    """
    try:
        return result_of(asyncio.run_coroutine_threadsafe(coroutine, loop))
    except concurrent.futures.CancelledError:
        raise ClientClosed("The worker stopped during the call.") from None


def result_of(future: concurrent.futures.Future[Result], timeout_seconds: float | None = None) -> Result:
    """Wait for the result. An error raised in this thread, such as TimedOut, cancels the call.

    Python raises such an error between two bytecodes. A wait without a timeout never reaches the
    next.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    try:
        while True:
            left = tuning.THREAD_LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            try:
                return future.result(max(0.0, min(left, tuning.THREAD_LOOK_SECONDS)))
            except TimeoutError:
                if future.done():
                    return future.result()  # it ended just now, or with this error
                if left <= 0:
                    raise
    except BaseException:
        future.cancel()
        raise


Response = TypeVar("Response")

# After a failure calls fail at once for this long; then one call tries again. gRPC itself
# reconnects at least this often.
REST_SECONDS = 1.0


class Outage:
    """Bounds calls while pulsed does not answer, and fails them at once right after a failure.

    Without a connection a call gets `seconds` instead of its timeout. Once a call has failed, an outage
    begins: further calls fail without being sent, except for one at a time that tries again. Any answer
    ends it.
    """

    def __init__(self, endpoint: Endpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._reason: str | None = None
        self._rests_until = 0.0
        self._is_trying = False

    async def bounded(
        self,
        timeout_seconds: float,
        connection: Connection,
        call: Callable[[float], Coroutine[Any, Any, Response]],
    ) -> Response:
        """Make the call with the time that it has. Raises Unavailable at once during an outage."""
        if self._reason is None:
            seconds = timeout_seconds if connection.is_ready else self._least(timeout_seconds)
            return await self._observed(call(seconds))
        if self._is_trying or time.monotonic() < self._rests_until:
            raise Unavailable(
                f"pulsed at {self._endpoint.address} did not answer a moment ago, so this call was not "
                f"sent. Calls try again {REST_SECONDS:.0f} s after a failure. The failure was: {self._reason}"
            )
        self._is_trying = True
        try:
            return await self._observed(call(self._least(timeout_seconds)))
        finally:
            self._is_trying = False

    def _least(self, timeout_seconds: float) -> float:
        return min(timeout_seconds, self._seconds)

    async def _observed(self, call: Coroutine[Any, Any, Response]) -> Response:
        try:
            response = await call
        except Unavailable as error:
            self._reason = error.message
            self._rests_until = time.monotonic() + REST_SECONDS
            raise
        except ClientClosed:
            raise
        except PulseError:
            self._reason = None  # pulsed has answered
            raise
        self._reason = None
        return response


class Session:
    """A connection, its submitter and its waits, bound to the event loop that opened them."""

    def __init__(self, endpoint: Endpoint, before: Session | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.redirection = current_redirection()
        self._process = os.getpid()
        # Kept alive: in a forked child, collecting the parent's channel could wait for threads that only the
        # parent has.
        self._of_parent = before if before is not None and before._process != self._process else None
        self.connection = Connection(endpoint)
        self.submitter = Submitter(self.connection)
        self.awaiting = Awaiting(self.connection)

    def is_here(self) -> bool:
        """True in the event loop of the session. In a forked child that loop does not run."""
        return self.loop is asyncio._get_running_loop()

    def is_abandoned(self) -> bool:
        """True when the session can no longer be used."""
        return self.loop.is_closed() or self._process != os.getpid()

    async def close(self) -> None:
        """Fail jobs that were not sent, and open waits, and close the connection."""
        await self.submitter.close()
        await self.awaiting.close()
        await self.connection.close()


def open_session(endpoint: Endpoint, before: Session | None) -> Session:
    """Return a session for the running event loop.

    Raises ClientClosed while another loop uses the client, and in a child that was forked after gRPC was
    used.
    """
    # First: a child forked in a running loop has no loop, and asyncio's error does not explain
    # that.
    refuse_forked_child()
    if before is not None and not before.is_abandoned():
        raise ClientClosed(
            "This client is in use by another event loop that is still alive. "
            "Make one Pulse for each event loop, or use SyncPulse from threads."
        )
    return Session(endpoint, before)


Request = TypeVar("Request")
Method: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[Request, Response]"


class Caller:
    """Calls pulsed for one client. Nothing connects before the first call."""

    def __init__(
        self, endpoint: Endpoint, timeout: timedelta, outage_timeout: timedelta | None = None
    ) -> None:
        self.endpoint = endpoint
        self.bounds_outages = outage_timeout is not None
        self._timeout_seconds = seconds_of("timeout", timeout)
        self._outage = (
            None if outage_timeout is None else Outage(endpoint, seconds_of("outage_timeout", outage_timeout))
        )
        self.server_ahead = timedelta()
        self._session: Session | None = None
        # By event loop, while clients are redirected.
        self._redirected: dict[asyncio.AbstractEventLoop, Session] = {}
        self._home: asyncio.AbstractEventLoop | None = None
        self._home_process = 0
        self._is_closed = False

    async def call(
        self,
        method: Callable[[PulseServiceAsyncStub], Method[Request, Response]],
        request: Request,
        timeout: timedelta | None,
        *,
        repeatable: bool = True,
    ) -> Response:
        """Call, and retry until the timeout. Raises a PulseError."""
        connection = self.session().connection
        response = await self.within(
            timeout,
            lambda seconds: connection.call(
                method(connection.stub), request, timeout_seconds=seconds, repeatable=repeatable
            ),
        )
        self.server_ahead = connection.server_ahead
        return response

    def within(
        self, timeout: timedelta | None, call: Callable[[float], Coroutine[Any, Any, Response]]
    ) -> Coroutine[Any, Any, Response]:
        """Return the call with its timeout in seconds. During an outage the timeout is shorter."""
        timeout_seconds = self.seconds(timeout)
        if self._outage is None:
            return call(timeout_seconds)
        return self._outage.bounded(timeout_seconds, self.session().connection, call)

    def seconds(self, timeout: timedelta | None) -> float:
        """Return the timeout of a call in seconds. The client has the default."""
        return self._timeout_seconds if timeout is None else seconds_of("timeout", timeout)

    def session(self) -> Session:
        """Return the session of the running event loop. Opens one if there is none."""
        if (redirection := current_redirection()) is not None:
            return self._redirected_session(redirection)
        session = self._session
        if session is None or not session.is_here():
            self._check_open()
            session = self._session = open_session(self.endpoint, session)
        return session

    def _redirected_session(self, redirection: Redirection) -> Session:
        """Return the session of the running event loop.

        In tests several loops use a client, and one test closes it (the lifespan of an application) before
        handlers and other tests use it.
        """
        redirection.check()
        loop = asyncio.get_running_loop()
        session = self._redirected.get(loop)
        if session is None or session.redirection is not redirection:
            for closed in [known for known in self._redirected if known.is_closed()]:
                del self._redirected[closed]
            session = self._redirected[loop] = Session(self.endpoint, None)
        return session

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("This client is closed. Make a new one, or enter it with `async with`.")

    def run_in_thread(self, coroutine: Coroutine[Any, Any, Response]) -> Response:
        """Run a verb of this client from a thread without an event loop, and block until it is done.

        It runs in the event loop of the open session, usually the worker's loop, or else in the
        loop given to `live_in`. Raises ClientClosed if that loop ends first.
        """
        session = self._session
        loop = self._home if self._home_process == os.getpid() else None
        if session is not None and not session.is_abandoned():
            loop = session.loop
        if (redirection := current_redirection()) is not None:
            loop = redirection.loop
        if loop is None:
            return asyncio.run(self._run_alone(coroutine))
        return run_in_loop(coroutine, loop)

    def loop_of_calls(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that uses the client, else the running one. None: there is neither."""
        session = self._session
        if session is not None and not session.is_abandoned():
            return session.loop
        return asyncio._get_running_loop()

    def live_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `run_in_thread` use this event loop if no other uses the client: a session in it lasts."""
        self._home, self._home_process = loop, os.getpid()

    async def _run_alone(self, coroutine: Coroutine[Any, Any, Response]) -> Response:
        try:
            return await coroutine
        finally:
            await self.close_session()

    def reopen(self) -> None:
        """Allow calls again after a close."""
        self._is_closed = False

    async def close(self) -> None:
        """Close the session. Calls in flight fail; later calls raise ClientClosed."""
        self._is_closed = current_redirection() is None
        await self.close_session()

    async def close_session(self) -> None:
        """Close the session; a later call opens another."""
        loop = asyncio._get_running_loop()  # None in a child that was forked in a running loop
        if loop is not None and (redirected := self._redirected.pop(loop, None)) is not None:
            await redirected.close()
        session, self._session = self._session, None
        if session is not None and session.is_here():
            await session.close()


class Wakes:
    """Sends wake-ups for one client. Without them servers find the jobs a moment later.

    One wake-up is in flight at a time. Any number of requests during it add one more.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._is_asked = False
        self._sending: asyncio.Task[None] | None = None

    def send_soon(self) -> None:
        """Send a wake-up from the event loop that uses the client, or from the running one. Never raises."""
        with contextlib.suppress(RuntimeError):  # that loop is closed
            if (loop := self._caller.loop_of_calls()) is not None:
                loop.call_soon_threadsafe(self.send)

    def send(self) -> None:
        """Send a wake-up. Call it in the event loop of the client."""
        self._is_asked = True
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="pulse-wake")

    async def _send(self) -> None:
        while self._is_asked:
            self._is_asked = False
            with contextlib.suppress(Exception):
                connection = self._caller.session().connection
                request = pb.SubmitJobsRequest(wake=True)
                await connection.try_once(connection.stub.SubmitJobs, request, tuning.WAKE_TIMEOUT_SECONDS)


def seconds_of(name: str, duration: timedelta) -> float:
    """Return a positive duration in seconds. Raises InvalidArgument for any other value."""
    check_duration(name, duration, example="seconds=10")
    return duration.total_seconds()


Verb = TypeVar("Verb", bound=Callable[..., Coroutine[Any, Any, Any]])


def blocks_in_handler_threads(verb: Verb) -> Verb:
    """Return the async verb, made to block where a handler runs without an event loop."""
    return _blocking(verb, _done)


def returns_in_handler_threads(verb: Verb) -> Verb:
    """Return the same for a verb whose result may be anything. There it cannot be awaited."""
    return _blocking(verb, lambda result: result)


def _blocking(verb: Verb, done: Callable[[Any], Any]) -> Verb:
    @functools.wraps(verb)
    def call(client: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        coroutine = verb(client, *args, **kwargs)
        # The context first: to ask for the event loop takes a system call.
        if current_context.get(None) is None or asyncio._get_running_loop() is not None:
            return coroutine
        caller: Caller = client._caller
        stored: Coroutine[Any, Any, Any] = done(caller.run_in_thread(coroutine))
        return stored

    # For callers that have an event loop for it: blocking clients.
    call.in_event_loop = verb  # type: ignore[attr-defined]
    return cast("Verb", call)


class _Done:
    """A coroutine that has ended: its result is itself."""

    __slots__ = ()

    def send(self, _: object) -> Any:
        raise StopIteration(self)

    def throw(self, error: BaseException, *_: object) -> Any:
        raise error

    def close(self) -> None:
        pass

    def __await__(self) -> Generator[Any, Any, Any]:
        return self
        yield


class _StoredJobs(_Done, list[JobHandle[Any]]):
    __slots__ = ()


class _Nothing(_Done):
    __slots__ = ()


Coroutine.register(_Nothing)
Coroutine.register(_StoredJobs)


@functools.lru_cache(maxsize=256)
def _stored_job(handles: type[Any]) -> type[Any]:
    """Return the class of handles that can be awaited as well."""
    meta: Any = type(handles)
    named = {"__module__": handles.__module__}
    made: type[Any] = meta("JobHandle", (_Done, handles), named, frozen=True, gc=False)
    Coroutine.register(made)
    return made


def _done(result: JobHandle[Any] | Iterable[JobHandle[Any]] | None) -> Coroutine[Any, Any, Any]:
    if result is None:
        return cast("Coroutine[Any, Any, Any]", _Nothing())
    if isinstance(result, JobHandle):
        stored = _stored_job(type(result))(result.id, result.topic, result.duplicate, result.replaced)
        return cast("Coroutine[Any, Any, Any]", stored)
    return cast("Coroutine[Any, Any, Any]", _StoredJobs(result))
