"""Authenticates callers and checks permissions: an interceptor that denies by default. ADR-0019"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from pulse_server.access.service import MALFORMED, Access, Authenticator, BadCredentials, Credentials
from pulse_server.access.users import WRONG, Directory, User
from pulse_server.base.errors import PermissionDenied, PulseError, Unauthenticated
from pulse_server.base.ids import new_id
from pulse_server.base.metrics import Metrics
from pulse_server.database.audit import Action, CountedCalls
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc.admission import AdmissionInterceptor, as_stream_handler
from pulse_server.transport.grpc.boundary import abort, status_of
from pulse_server.transport.grpc.callers import caller_address
from pulse_server.transport.grpc.change_log import is_change
from pulse_server.transport.grpc.permissions import PUBLIC, ROLES_THAT_MAY, may_call
from pulse_server.transport.grpc.responses import Responses
from pulse_server.transport.grpc.silent_connections import SilentConnections
from pulse_server.transport.grpc.worker_ids import set_calling_user

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]


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
