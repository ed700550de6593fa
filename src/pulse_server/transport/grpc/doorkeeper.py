"""Lets in who may come in: one interceptor in front of every method, which denies by default. ADR-0019"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from pulse_server.access.authenticator import MALFORMED, WRONG, Authenticator
from pulse_server.access.directory import Directory
from pulse_server.access.users import User
from pulse_server.domain.errors import PermissionDenied, PulseError, Unauthenticated
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc.boundary import abort, forgotten_if_aborted, status_of
from pulse_server.transport.grpc.permissions import PUBLIC, ROLES_THAT_MAY, may_call
from pulse_server.transport.grpc.strangers import StrangersRequests
from pulse_server.transport.grpc.worker_ids import note_caller

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]


class Doorkeeper(grpc.aio.ServerInterceptor):
    """A unary call with credentials that were checked before goes straight to its handler.

    Everything else gets a handler that takes a stream, because gRPC calls such a one before it reads any
    message: whoever is refused has not made the server take in a body. On the wire there is no difference.
    """

    def __init__(self, authenticator: Authenticator, directory: Directory, metrics: Metrics) -> None:
        self._authenticator = authenticator
        self._directory = directory
        self._metrics = metrics
        self._strangers = StrangersRequests()
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
            return handler and _taking_a_stream(handler, partial(self._answer_anybody, handler))
        try:
            authorization = _authorization(details)
            user = self._authenticator.recognise(authorization)
            if user is not None:
                _require_permission(user, method, handler)
                note_caller(user.name)
        except PulseError as error:
            return _taking_a_stream(None, partial(self._refuse, method, error))
        if user is not None and (handler is None or _is_unary(handler)):
            return handler  # None: gRPC answers UNIMPLEMENTED
        return _taking_a_stream(handler, partial(self._call, handler, method, authorization))

    async def _answer_anybody(self, handler: Handler, _requests: Any, context: Context) -> None:
        await _respond(handler, await self._strangers.read(context), context)

    async def _call(
        self, handler: Handler | None, method: str, authorization: str | None, requests: Any, context: Context
    ) -> None:
        try:
            user = await self._authenticator.authenticate(authorization, peer_address(context.peer()))
            _require_permission(user, method, handler)
            note_caller(user.name)
        except PulseError as error:
            await self._refuse(method, error, requests, context)
        if handler is None:
            await abort(context, grpc.StatusCode.UNIMPLEMENTED, f"This server has no method {method}.")
        elif _is_unary(handler):
            await _serve(handler, requests, context)
        else:
            await self._serve_until_revoked(_Stream(user, method), handler, requests, context)

    async def _serve_until_revoked(
        self, stream: _Stream, handler: Handler, requests: Any, context: Context
    ) -> None:
        work = asyncio.create_task(_serve(handler, requests, context))
        try:
            with self._entered(stream):
                ends: set[asyncio.Future[Any]] = {work, stream.revoked}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                # The handler cleans up first: what it has not delivered goes back before the caller hears.
                await _cancel(work)
                if work.cancelled():
                    await self._refuse(stream.method, stream.revoked.result(), requests, context)
            await work
        finally:
            await _cancel(work)

    @contextmanager
    def _entered(self, stream: _Stream) -> Iterator[None]:
        self._streams.add(stream)
        self._end_if_revoked(stream)  # the users may have changed since this one was let in
        try:
            yield
        finally:
            self._streams.discard(stream)

    def _end_streams(self) -> None:
        """The users have changed: end the streams of those who would not be let in as they were."""
        for stream in list(self._streams):
            self._end_if_revoked(stream)

    def _end_if_revoked(self, stream: _Stream) -> None:
        error = self._objection(stream)
        if error is not None and not stream.revoked.done():
            log.info("stream_revoked", extra={"user": stream.user.name, "method": stream.method})
            stream.revoked.set_result(error)

    def _objection(self, stream: _Stream) -> PulseError | None:
        user = self._directory.find(stream.user.name)
        if user is None or user.secret != stream.user.secret:
            return Unauthenticated(WRONG)
        if not may_call(user.role, stream.method):
            return _not_permitted(user, stream.method)
        return None

    async def _refuse(self, method: str, error: PulseError, _requests: Any, context: Context) -> NoReturn:
        code = status_of(error)
        # Anybody can make up methods; each as a label of its own would fill the memory.
        name = method.rpartition("/")[2] if method in ROLES_THAT_MAY else "(other)"
        self._metrics.rpcs.add(name, code.name)
        await abort(context, code, str(error))


class _Stream:
    """A stream that is open, and the future that ends it."""

    def __init__(self, user: User, method: str) -> None:
        self.user = user
        self.method = method
        self.revoked: asyncio.Future[PulseError] = asyncio.get_running_loop().create_future()


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    found = [value for key, value in details.invocation_metadata or () if key == "authorization"]
    if len(found) > 1:
        raise Unauthenticated(MALFORMED)  # which one counts would depend on who reads it
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


def _taking_a_stream(
    handler: Handler | None, behaviour: Callable[[Any, Context], Awaitable[None]]
) -> Handler:
    return grpc.stream_stream_rpc_method_handler(
        forgotten_if_aborted(behaviour),
        request_deserializer=handler.request_deserializer if handler else None,
        response_serializer=handler.response_serializer if handler else None,
    )


async def _serve(handler: Handler, requests: Any, context: Context) -> None:
    """Do what gRPC would have done with the handler."""
    if not handler.request_streaming:
        requests = await context.read()
        if requests is grpc.aio.EOF:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "The call ended without a request.")
    await _respond(handler, requests, context)


async def _respond(handler: Handler, requests: Any, context: Context) -> None:
    """Call the behaviour with its request, or its requests, and send what it answers."""
    behaviour: Any = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    if inspect.isasyncgenfunction(behaviour):
        async for response in behaviour(requests, context):
            await context.write(response)
        return
    response = await behaviour(requests, context)
    if not handler.response_streaming:
        await context.write(response)


async def _cancel(work: asyncio.Task[None]) -> None:
    """End the task and wait until it has cleaned up."""
    work.cancel()
    await asyncio.wait({work})
