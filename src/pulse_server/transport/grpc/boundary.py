"""The edge of the server: where bytes become messages, and an error becomes a gRPC status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple, NoReturn

import grpc
from google.protobuf.message import Message

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import errors
from pulse_server.telemetry.metrics import Metrics
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


_STATUS_OF: dict[type[errors.PulseError], grpc.StatusCode] = {
    Malformed: grpc.StatusCode.INVALID_ARGUMENT,
    NoRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.JobNotFound: grpc.StatusCode.NOT_FOUND,
    errors.ScheduleNotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.ScheduleExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.InvalidTransition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.TooManyLogins: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.JobLocked: grpc.StatusCode.UNAVAILABLE,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
}


# Tells a client that the sentence is ours: gRPC's own transport failures come under the same codes.
_SAID_BY_PULSED = (("pulse-answer", "1"),)


def status_of(error: errors.PulseError) -> grpc.StatusCode:
    return _STATUS_OF.get(type(error), grpc.StatusCode.UNKNOWN)


def refusal(error: errors.PulseError) -> pb.Refusal:
    """The same answer for one item of a batch."""
    return pb.Refusal(code=status_of(error).value[0], message=str(error))


Behaviour = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


def handlers(
    behaviours: Mapping[str, Behaviour],
    metrics: Metrics | None = None,
    recorded: Callable[[str, Behaviour], Behaviour] = lambda _method, behaviour: behaviour,
) -> grpc.GenericRpcHandler:
    """The RPCs of the service, each behind the boundary. Each method of the contract needs a behaviour.

    `recorded` logs what a call of the method changes; it sees a refusal as a Failure.
    """
    metrics = metrics or Metrics()
    methods = pb.DESCRIPTOR.services_by_name["PulseService"].methods
    missing = {method.name for method in methods} ^ behaviours.keys()
    if missing:
        raise ValueError(f"the contract and the handlers differ in {', '.join(sorted(missing))}")
    table = {}
    for method in methods:
        is_stream = method.server_streaming
        make = _MAKERS[method.client_streaming, is_stream]
        parse = Parser(getattr(pb, method.input_type.name))
        table[method.name] = make(
            forgotten_if_aborted(
                _guarded(
                    recorded(
                        method.name,
                        judged(method.name, behaviours[method.name], metrics, is_stream=is_stream),
                    )
                )
            ),
            request_deserializer=_sized(parse) if method.client_streaming else parse,
            response_serializer=getattr(pb, method.output_type.name).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE, table)


_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class Sized(NamedTuple):
    """A message of a stream, and how many bytes it had."""

    message: Message | Unreadable
    size: int


def _sized(parse: Callable[[bytes], Message | Unreadable]) -> Callable[[bytes], Sized]:
    return lambda data: Sized(parse(data), len(data))


class Failure(NamedTuple):
    """What a call fails with."""

    code: grpc.StatusCode
    sentence: str


_BUG = Failure(grpc.StatusCode.INTERNAL, "The server met an error of its own; its log has the details.")


def judged(name: str, behaviour: Behaviour, metrics: Metrics, *, is_stream: bool = False) -> Behaviour:
    """The behaviour, with a Failure for an answer where it raises. Each call of it is counted and timed."""

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        began = perf_counter()
        code = grpc.StatusCode.OK
        try:
            if isinstance(request, Unreadable):
                raise Malformed(request)
            return await behaviour(request, context)
        except errors.PulseError as error:
            code = status_of(error)
            # A frame in it may have the error in a variable: they would keep each other, and the request.
            error.__traceback__ = None
            return Failure(code, str(error))
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.InternalError:
            # What gRPC raises when a message could not be handed over: the caller has left.
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


def _guarded(judge: Behaviour) -> Behaviour:
    """The judged behaviour, whose failures abort the call."""

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        answer = await judge(request, context)
        if isinstance(answer, Failure):
            await abort(context, *answer)
        return answer

    return call


def forgotten_if_aborted(behaviour: Behaviour) -> Behaviour:
    """The behaviour, of whose aborted calls nothing stays in memory.

    gRPC keeps the error of an abort with the call, and the frames in the error's traceback keep the call and
    its request. Such a ring waits for the collector, which counts objects and not bytes: a few hundred calls
    that are refused, at up to MAX_MESSAGE_BYTES each.
    """

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(request, context)
        except grpc.aio.AbortError as error:
            del request, context
            error.__context__ = None  # it has frames, too
            raise error.with_traceback(None) from None

    return call


async def require_readable(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Abort the call if its request is none. For what is served without the boundary."""
    if isinstance(request, Unreadable):
        error = Malformed(request)
        await abort(context, status_of(error), str(error))


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, sentence: str
) -> NoReturn:
    await context.abort(code, sentence, trailing_metadata=_SAID_BY_PULSED)
    raise AssertionError("abort always raises")
