"""Admits, reads and parses each request, calls its handler, and sends the response. ADR-0038

gRPC reads the request of a unary handler before it calls the handler; a stream handler is called first. So
each handler is registered as a stream handler. The wire format is the same.

An interceptor authenticates callers and checks permissions: it denies by default. The requests and streams of
anonymous callers, which use the health service, are bounded. ADR-0019

The bytes of all requests that are read or answered are bounded. gRPC reads a message of up to
MAX_MESSAGE_BYTES as a whole, does not report its size before, and waits without limit for one that does not
end. Of a message that is not read yet it takes in 64 KiB. So a request waits for room for the largest one,
and keeps what it takes until it is answered.

So are those of responses that callers have not read yet. gRPC keeps a response until its caller reads it. A
connection that reads nothing could make it keep a thousand responses. Each response is therefore counted from
the write until it has left.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from pulse_server.access.service import MALFORMED, Access, Authenticator, BadCredentials, Credentials
from pulse_server.access.users import WRONG, Directory, User
from pulse_server.base import tuning
from pulse_server.base.errors import PermissionDenied, PulseError, ResourceExhausted, Unauthenticated
from pulse_server.base.ids import new_id
from pulse_server.base.loops import lease_clock
from pulse_server.base.metrics import Metrics
from pulse_server.base.sharing import Budget
from pulse_server.database.audit import Action, CountedCalls
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.boundary import NoRequest, Parser, Unparsed, abort, freed_if_aborted, status_of
from pulse_server.doors.callers import (
    PUBLIC,
    ROLES_THAT_MAY,
    caller_address,
    is_change,
    may_call,
    set_calling_user,
)
from pulse_server.doors.quotas import Quota, SilentConnections

# Responses that wait to be read, of all callers and of one; gRPC has a copy of each. A small one is always
# sent.
UNREAD_BYTES = 64 * 1024 * 1024
UNREAD_BYTES_OF_ONE_CALLER = 40 * 1024 * 1024
SMALL_ANSWER_BYTES = 4 * 1024

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

_UNREAD = (
    "The answer was not sent, because too many earlier answers have not been read. Read them and try again."
)
_TOO_LARGE = (
    f"This is done, but its answer has {{}} bytes, and a message may have {tuning.MAX_MESSAGE_BYTES}. "
    "Send or ask for less at a time."
)


class Responses:
    """The unread responses of all callers."""

    def __init__(self) -> None:
        self._unread = Budget(UNREAD_BYTES, of_one=UNREAD_BYTES_OF_ONE_CALLER, refusal=_UNREAD)

    def has_room(self, caller: str, data: bytes) -> bool:
        return len(data) <= SMALL_ANSWER_BYTES or self._unread.has_room(caller, len(data))

    async def send(self, data: bytes, caller: str, context: Context) -> None:
        """Return once the response has left. ResourceExhausted for a large one if too many are unread."""
        if len(data) > tuning.MAX_MESSAGE_BYTES:
            raise ResourceExhausted(_TOO_LARGE.format(len(data)))
        if len(data) <= SMALL_ANSWER_BYTES:
            await context.write(data)
            return
        with self._unread.taken(caller, len(data)):
            await context.write(data)

    async def respond(self, handler: Handler, requests: Any, caller: str, context: Context) -> None:
        """Call the handler with its request or requests, and send its response."""
        behavior: Any = (
            handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        )
        if inspect.isasyncgenfunction(behavior):
            async for response in behavior(requests, context):
                await context.write(response)
            return
        response = await behavior(requests, context)
        if not handler.response_streaming:
            serialize: Any = handler.response_serializer
            data = serialize(response)
            del response  # otherwise both it and its bytes stay in memory
            await self.send(data, caller, context)


def serialized_or_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return the serializer, which passes bytes through: they are a serialized response."""
    return lambda response: response if isinstance(response, bytes) else serialize(response)


# Requests that are read or answered, of all callers and of one method of one caller: a flood of large submits
# delays no reports and heartbeats. Several floods leave the spare bytes to methods that have less than one
# large request. An answered request and its jobs take about two copies.
REQUESTS_BYTES = 96 * 1024 * 1024
REQUESTS_BYTES_OF_ONE = 32 * 1024 * 1024
REQUESTS_SPARE_BYTES = 24 * 1024 * 1024
# How long a request may take to arrive. It is looked at this often. After three looks it is slow, and gives
# way to a request that waits for its room.
REQUEST_PATIENCE = timedelta(seconds=60)
REQUEST_LOOK = timedelta(milliseconds=50)
REQUEST_SLOW_LOOKS = 3

_TOO_SLOW = "The request did not arrive in time, and others are waiting. Try again."


class Intake:
    """The requests that are read or answered."""

    def __init__(self) -> None:
        self._room = Quota(
            REQUESTS_BYTES,
            of_one=REQUESTS_BYTES_OF_ONE,
            each=tuning.MAX_MESSAGE_BYTES,
            spare=REQUESTS_SPARE_BYTES,
        )

    @asynccontextmanager
    async def request(
        self, context: grpc.aio.ServicerContext[Any, Any], caller: str, method: str, parser: Parser
    ) -> AsyncIterator[Unparsed]:
        """Yield the request, weighed. It has its room while the block runs.

        Raises ResourceExhausted if it is not admitted, or does not arrive.
        """
        key = f"{caller} {method}"
        await self._room.enter(key)
        kept: int | None = None
        try:
            unparsed = parser(await _Reading(self._room, key).read(context))
            kept = self._room.keep(key, await unparsed.weigh())
            yield unparsed
        finally:
            self._room.leave(key, kept)


class _Reading:
    """A request that has not arrived yet."""

    def __init__(self, room: Quota, key: str) -> None:
        self._room = room
        self._key = key
        self._looks = 0

    async def read(self, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(REQUEST_LOOK.total_seconds(), self._look, loop)
        try:
            async with asyncio.timeout(None) as self._patience:
                data = await context.read()
        except TimeoutError:
            raise ResourceExhausted(_TOO_SLOW) from None
        finally:
            self._next_look.cancel()
        if data is grpc.aio.EOF:
            raise NoRequest
        return data  # type: ignore[no-any-return]

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        # Several looks, so that a late event loop does not count.
        self._looks += 1
        is_slow = self._looks >= REQUEST_SLOW_LOOKS and self._room.is_wanted(self._key)
        if is_slow or self._looks * REQUEST_LOOK >= REQUEST_PATIENCE:
            self._patience.reschedule(loop.time())
        else:
            self._next_look = loop.call_later(REQUEST_LOOK.total_seconds(), self._look, loop)


# Requests read at a time: 16 MiB at the worst, if each has the largest size. And the time for one to arrive;
# it has a few bytes.
ANONYMOUS_REQUESTS = 4
ANONYMOUS_REQUEST_TIMEOUT = timedelta(seconds=1)
# Streams of Health.Watch, 24 kB each: in total, and from one address.
ANONYMOUS_STREAMS = 1000
ANONYMOUS_STREAMS_PER_ADDRESS = 100
# Refusals within this time are logged once.
REFUSALS_LOG_INTERVAL = timedelta(minutes=1)

log = logging.getLogger(__name__)

_TOO_MANY = "Too many streams without a user are open. Use Check, or try again later."
_ANONYMOUS_TOO_SLOW = "The request did not arrive in time. Send it at once."


class AnonymousRequests:
    """Reads requests, few at a time and each within a time limit.

    gRPC reads up to MAX_MESSAGE_BYTES before a request can be checked, and waits without limit for one that
    does not end.
    """

    def __init__(self) -> None:
        self._reading: dict[asyncio.Task[Any], None] = {}

    async def read(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Return the request of the call. Aborts the call if it does not arrive."""
        reading: asyncio.Task[Any] = asyncio.ensure_future(context.read())
        self._reading[reading] = None
        self._cancel_oldest()
        try:
            await asyncio.wait({reading}, timeout=ANONYMOUS_REQUEST_TIMEOUT.total_seconds())
        finally:
            self._reading.pop(reading, None)
            reading.cancel()
        if not reading.done() or reading.cancelled():
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _ANONYMOUS_TOO_SLOW)
        request = reading.result()
        if request is grpc.aio.EOF:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "The call ended without a request.")
        return request

    def _cancel_oldest(self) -> None:
        # A healthy caller has sent its request before this many later requests arrive.
        if len(self._reading) > ANONYMOUS_REQUESTS:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            oldest.cancel()


class AnonymousStreams:
    """The open streams, bounded in total and per address."""

    def __init__(self) -> None:
        self._open = Budget(ANONYMOUS_STREAMS, of_one=ANONYMOUS_STREAMS_PER_ADDRESS, refusal=_TOO_MANY)
        self._logged_at = -math.inf

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Count a stream while the block runs. Raises ResourceExhausted if there are too many."""
        if not self._open.has_room(address):
            self._log(address)
        with self._open.taken(address):
            yield

    def _log(self, address: str) -> None:
        now = lease_clock()
        if now - self._logged_at >= REFUSALS_LOG_INTERVAL.total_seconds():
            log.warning(
                "streams_without_user_refused",
                extra={"address": address, "open": self._open.total, "of_address": self._open.of(address)},
            )
        self._logged_at = now


# The memory of a call under way. The totals are for 5,000 calls of all callers, and 4,000 calls of
# one caller: a thousand workers of one user have up to four each. The request of a stream stays in
# memory as long as the stream, in about three copies.
CALL_BYTES = 32 * 1024
CALLS_BYTES = 5000 * CALL_BYTES
CALLS_BYTES_OF_ONE_CALLER = 4000 * CALL_BYTES
REQUEST_COPIES = 3

_MANY_CALLS = "Too many calls are in progress. End some, or try again in a moment."


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """The interceptor of a server without users. With users, AuthenticationInterceptor calls it."""

    def __init__(self, metrics: Metrics, responses: Responses, connections: SilentConnections) -> None:
        self._metrics = metrics
        self._connections = connections
        self._responses = responses
        self._intake = Intake()
        self._calls = Budget(CALLS_BYTES, of_one=CALLS_BYTES_OF_ONE_CALLER, refusal=_MANY_CALLS)
        self._anonymous_requests = AnonymousRequests()
        self._anonymous_streams = AnonymousStreams()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(details)
        if handler is None:
            return None
        if details.method in PUBLIC:
            return as_stream_handler(handler, partial(self.serve_anonymous, handler))
        return self.admitted(handler, details.method, None)

    def admitted(self, handler: Handler, method: str, user: str | None) -> Handler:
        """Return the handler, which is called once its request was admitted and read."""
        return as_stream_handler(handler, partial(self.serve, handler, method, user))

    async def serve(
        self, handler: Handler, method: str, user: str | None, requests: Any, context: Context
    ) -> None:
        """Serve a call. It counts for the user, or else for its address."""
        peer = context.peer()
        self._connections.let_in(peer)
        caller = user or peer_address(peer)
        try:
            with self._calls.taken(caller, CALL_BYTES):
                await self._serve(handler, method, caller, requests, context)
        except PulseError as error:
            await self.refuse(method, error, context)

    async def _serve(
        self, handler: Handler, method: str, caller: str, requests: Any, context: Context
    ) -> None:
        if handler.request_streaming:
            await self._responses.respond(handler, requests, caller, context)
            return
        async with self._intake.request(context, caller, method, _parser(handler)) as unparsed:
            # The request of a stream stays in memory as long as the stream, parsed and as a message.
            kept = await unparsed.weigh() * REQUEST_COPIES if handler.response_streaming else 0
            request = await unparsed.parse()
            if not handler.response_streaming:
                await self._responses.respond(handler, request, caller, context)
        if handler.response_streaming:
            with self._calls.taken(caller, kept):
                await self._responses.respond(handler, request, caller, context)

    async def serve_anonymous(self, handler: Handler, _requests: Any, context: Context) -> None:
        """Serve a call without authentication."""
        with self._connections.anonymous_call(context.peer()):
            await self._serve_anonymous(handler, context)

    async def _serve_anonymous(self, handler: Handler, context: Context) -> None:
        request = await _parser(handler)(await self._anonymous_requests.read(context)).parse()
        address = peer_address(context.peer())
        if not handler.response_streaming:
            await self._responses.respond(handler, request, address, context)
            return
        try:
            with self._anonymous_streams.counted(address):
                await self._responses.respond(handler, request, address, context)
        except ResourceExhausted as error:
            await abort(context, status_of(error), str(error))

    async def refuse(self, method: str, error: PulseError, context: Context) -> NoReturn:
        code = status_of(error)
        # Callers can invent method names. A label for each would fill the memory.
        name = method.rpartition("/")[2] if method in ROLES_THAT_MAY else "(other)"
        self._metrics.rpcs.add(name, code.name)
        await abort(context, code, str(error))


def as_stream_handler(
    handler: Handler | None, behavior: Callable[[Any, Context], Awaitable[None]]
) -> Handler:
    """Return a stream handler that calls the behavior. A single request reaches it as bytes."""
    takes_messages = handler is not None and handler.request_streaming
    return grpc.stream_stream_rpc_method_handler(
        freed_if_aborted(behavior),
        request_deserializer=handler.request_deserializer if handler and takes_messages else None,
        response_serializer=handler.response_serializer and serialized_or_bytes(handler.response_serializer)
        if handler
        else None,
    )


def _parser(handler: Handler) -> Parser:
    parser: Any = handler.request_deserializer
    assert isinstance(parser, Parser), "all handlers have one"
    return parser


def interceptors(
    access: Access | None,
    metrics: Metrics,
    responses: Responses,
    connections: SilentConnections,
    refused: CountedCalls,
) -> tuple[grpc.aio.ServerInterceptor, ...]:
    """Return the interceptors of a server, with users or without."""
    admission = AdmissionInterceptor(metrics, responses, connections)
    if access is None:
        return (admission,)
    return (AuthenticationInterceptor(access.authenticator, access.directory, admission, refused),)


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """Authenticates a caller before its request is read: a refused caller cannot make the server read a body.

    A call with credentials that were checked before goes straight to admission.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        directory: Directory,
        admission: AdmissionInterceptor,
        refused: CountedCalls,
    ) -> None:
        self._authenticator = authenticator
        self._directory = directory
        self._admission = admission
        self._refused = refused
        self._streams: set[_Stream] = set()
        directory.on_change(self._end_streams)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(details)
        method = details.method
        if method in PUBLIC:
            return handler and as_stream_handler(handler, partial(self._admission.serve_anonymous, handler))
        try:
            authorization = _authorization(details)
            user = self._authenticator.recognize(authorization)
            if user is not None:
                _require_permission(user, method, handler)
                set_calling_user(user.name)
        except PulseError as error:
            return as_stream_handler(None, partial(self._refuse, method, error))
        if handler is None and user is not None:
            return None  # gRPC answers UNIMPLEMENTED
        if handler is not None and user is not None and _is_unary(handler):
            return self._admission.admitted(handler, method, user.name)
        return as_stream_handler(handler, partial(self._call, handler, method, authorization))

    async def _call(
        self, handler: Handler | None, method: str, authorization: str | None, requests: Any, context: Context
    ) -> None:
        try:
            user = await self._authenticator.authenticate(authorization, peer_address(context.peer()))
            _require_permission(user, method, handler)
            set_calling_user(user.name)
        except PulseError as error:
            await self._refuse(method, error, requests, context)
        if handler is None:
            await abort(context, grpc.StatusCode.UNIMPLEMENTED, f"This server has no method {method}.")
        elif _is_unary(handler):
            await self._admission.serve(handler, method, user.name, requests, context)
        else:
            await self._serve_until_revoked(_Stream(user, method), handler, requests, context)

    async def _serve_until_revoked(
        self, stream: _Stream, handler: Handler, requests: Any, context: Context
    ) -> None:
        work = asyncio.create_task(
            self._admission.serve(handler, stream.method, stream.user.name, requests, context)
        )
        try:
            with self._entered(stream):
                ends: set[asyncio.Future[Any]] = {work, stream.revoked}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                # The handler cleans up first: undelivered jobs are released before the caller is notified.
                await _cancel(work)
                if work.cancelled():
                    await self._refuse(stream.method, stream.revoked.result(), requests, context)
            await work
        finally:
            await _cancel(work)

    @contextmanager
    def _entered(self, stream: _Stream) -> Iterator[None]:
        self._streams.add(stream)
        self._end_if_revoked(stream)  # the users may have changed since this one was authenticated
        try:
            yield
        finally:
            self._streams.discard(stream)

    def _end_streams(self) -> None:
        """End the streams of users that were removed, or lost their password or permission."""
        for stream in list(self._streams):
            self._end_if_revoked(stream)

    def _end_if_revoked(self, stream: _Stream) -> None:
        error = self._revocation(stream)
        if error is not None and not stream.revoked.done():
            log.info("stream_revoked", extra={"user": stream.user.name, "method": stream.method})
            stream.revoked.set_result(error)

    def _revocation(self, stream: _Stream) -> PulseError | None:
        user = self._directory.find(stream.user.name)
        if user is None or user.secret != stream.user.secret:
            return Unauthenticated(WRONG)
        if not may_call(user.role, stream.method):
            return _not_permitted(user, stream.method)
        return None

    async def _refuse(self, method: str, error: PulseError, _requests: Any, context: Context) -> NoReturn:
        if method in ROLES_THAT_MAY and is_change(method.rpartition("/")[2]):
            self._record(method, error, context)
        await self._admission.refuse(method, error, context)

    def _record(self, method: str, error: PulseError, context: Context) -> None:
        """Record the refused change for the audit. An unknown name may be a password in the wrong field."""
        if not isinstance(error, PermissionDenied | Unauthenticated):
            return
        metadata = dict(context.invocation_metadata() or ())
        try:
            name = Credentials.parse(str(metadata.get("authorization", ""))).name
        except BadCredentials:
            return
        user = self._directory.find(name)
        if user is not None:
            role = user.role.value if isinstance(error, PermissionDenied) else ""
            address = caller_address(context.peer(), metadata)
            action = Action(new_id(), method.rpartition("/")[2], user.name, role, address)
            self._refused.record(action, status_of(error).name, str(error))


class _Stream:
    """An open stream, and the future that ends it."""

    def __init__(self, user: User, method: str) -> None:
        self.user = user
        self.method = method
        self.revoked: asyncio.Future[PulseError] = asyncio.get_running_loop().create_future()


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    found = [value for key, value in details.invocation_metadata or () if key == "authorization"]
    if len(found) > 1:
        raise Unauthenticated(MALFORMED)  # readers would disagree about which one counts
    return str(found[0]) if found else None


def _require_permission(user: User, method: str, handler: Handler | None) -> None:
    if handler is not None and not may_call(user.role, method):
        raise _not_permitted(user, method)


def _not_permitted(user: User, method: str) -> PermissionDenied:
    roles = ", ".join(sorted(ROLES_THAT_MAY.get(method, ()))) or "none"
    return PermissionDenied(
        f"User {user.name!r} has the role {user.role}, which may not call {method.rpartition('/')[2]}. "
        f"Roles that may: {roles}."
    )


def _is_unary(handler: Handler) -> bool:
    return not handler.request_streaming and not handler.response_streaming


async def _cancel(work: asyncio.Task[None]) -> None:
    """Cancel the task and wait until it has cleaned up."""
    work.cancel()
    await asyncio.wait({work})
