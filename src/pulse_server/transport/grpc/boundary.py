"""The boundary of the server: parses requests, and maps errors to gRPC statuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from time import perf_counter
from typing import Any, NamedTuple, NoReturn

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import errors
from pulse_server.base.metrics import Metrics
from pulse_server.transport.grpc.parsing import Parser, Unreadable

log = logging.getLogger(__name__)

SERVICE = "pulse.v1.PulseService"


class Malformed(errors.PulseError):
    def __init__(self, unreadable: Unreadable) -> None:
        super().__init__(
            f"This {unreadable.meant} has more entries than any call may have. Send fewer at a time."
            if unreadable.has_too_many_fields
            else f"This is not a valid {unreadable.meant}. Encode it with {unreadable.contract}, "
            "strings in UTF-8."
        )


class NoRequest(errors.PulseError):
    def __init__(self) -> None:
        super().__init__("The call ended without a request.")


_STATUS_OF: dict[type, grpc.StatusCode] = {
    errors.PulseError: grpc.StatusCode.UNKNOWN,
    Malformed: grpc.StatusCode.INVALID_ARGUMENT,
    NoRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.JobNotFound: grpc.StatusCode.NOT_FOUND,
    errors.ScheduleNotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.ScheduleExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.WorkflowNotFound: grpc.StatusCode.NOT_FOUND,
    errors.WorkerNotFound: grpc.StatusCode.NOT_FOUND,
    errors.WorkflowExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.InvalidTransition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.TooManyLogins: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
}


# Marks a status of pulsed: transport failures of gRPC have the same codes.
_ANSWERED_BY_PULSED = (("pulse-answer", "1"),)


def status_of(error: errors.PulseError) -> grpc.StatusCode:
    """Return the status of the error, or of the kind that it is one of."""
    return next(_STATUS_OF[kind] for kind in type(error).__mro__ if kind in _STATUS_OF)


def refusal(error: errors.PulseError) -> pb.Refusal:
    """Return the same status as the refusal of one item of a batch."""
    return pb.Refusal(code=status_of(error).value[0], message=str(error))


Behavior = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


def handlers(
    behaviors: Mapping[str, Behavior],
    metrics: Metrics,
    recorded: Callable[[str, Behavior], Behavior],
    clock: Callable[[], datetime],
) -> grpc.GenericRpcHandler:
    """Return the handlers of the service, each behind the boundary. Every method needs a behavior.

    `recorded` logs the changes that a call makes; a refusal reaches it as a Failure.
    `clock` is the time of the database.
    """
    methods = pb.DESCRIPTOR.services_by_name["PulseService"].methods
    missing = {method.name for method in methods} ^ behaviors.keys()
    if missing:
        raise ValueError(f"the contract and the handlers differ in {', '.join(sorted(missing))}")
    table = {}
    for method in methods:
        is_stream = method.server_streaming
        behavior = behaviors[method.name]
        if method.name.startswith(_READING):
            behavior = _dated(behavior, clock)
        make = _MAKERS[method.client_streaming, is_stream]
        table[method.name] = make(
            freed_if_aborted(
                _aborting(
                    recorded(
                        method.name,
                        returning_failures(method.name, behavior, metrics, is_stream=is_stream),
                    )
                )
            ),
            request_deserializer=Parser(getattr(pb, method.input_type.name)),
            response_serializer=getattr(pb, method.output_type.name).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE, table)


_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


# The methods that answer with times. Submits and reports do not pay for the header.
_READING = ("Get", "List", "Count", "Find")


def _dated(behavior: Behavior, clock: Callable[[], datetime]) -> Behavior:
    """Return the behavior; its answers carry the time, so that a client can show ages by this clock."""

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        answer = await behavior(request, context)
        context.set_trailing_metadata((("pulse-time", f"{clock().timestamp():.3f}"),))
        return answer

    return call


class Failure(NamedTuple):
    """The status of a failed call."""

    code: grpc.StatusCode
    sentence: str


_BUG = Failure(grpc.StatusCode.INTERNAL, "Internal error. The log of the server has the details.")


def returning_failures(
    name: str, behavior: Behavior, metrics: Metrics, *, is_stream: bool = False
) -> Behavior:
    """Return the behavior with its errors as Failures. Each call is counted and timed."""

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        began = perf_counter()
        code = grpc.StatusCode.OK
        try:
            if isinstance(request, Unreadable):
                raise Malformed(request)
            return await behavior(request, context)
        except errors.PulseError as error:
            code = status_of(error)
            # A frame of the traceback may hold the error. The cycle would keep the request in memory.
            error.__traceback__ = None
            return Failure(code, str(error))
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.InternalError:
            # gRPC raises it when a message cannot be written: the caller has disconnected.
            code = grpc.StatusCode.CANCELLED
        except Exception:
            code = _BUG.code
            log.exception("call_failed", extra={"method": name})
            return _BUG
        finally:
            metrics.rpcs.add(name, code.name)
            if not is_stream:
                metrics.rpc_time.observe(name, value=perf_counter() - began)

    return call


def _aborting(behavior: Behavior) -> Behavior:
    """Return the behavior with its Failures as aborted calls."""

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        answer = await behavior(request, context)
        if isinstance(answer, Failure):
            await abort(context, *answer)
        return answer

    return call


def freed_if_aborted(behavior: Behavior) -> Behavior:
    """Return the behavior; an aborted call of it leaves nothing in memory.

    gRPC keeps the error of an abort with the call, and the frames in the error's traceback keep the call and
    its request. Such a cycle waits for the garbage collector, which counts objects and not bytes: it would
    keep a few hundred refused requests of up to MAX_MESSAGE_BYTES each.
    """

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behavior(request, context)
        except grpc.aio.AbortError as error:
            del request, context
            error.__context__ = None  # it has frames as well
            raise error.with_traceback(None) from None

    return call


async def require_readable(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Abort the call if its request could not be parsed. For handlers that are not behind the boundary."""
    if isinstance(request, Unreadable):
        error = Malformed(request)
        await abort(context, status_of(error), str(error))


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, sentence: str
) -> NoReturn:
    await context.abort(code, sentence, trailing_metadata=_ANSWERED_BY_PULSED)
    raise AssertionError("abort always raises")
