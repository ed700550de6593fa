"""The edge of the server: where bytes become messages, and an error becomes a gRPC status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import errors
from pulse_server.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

SERVICE = "pulse.v1.PulseService"

_STATUS_OF: dict[type[errors.PulseError], grpc.StatusCode] = {
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


def handlers(behaviours: Mapping[str, Behaviour], metrics: Metrics | None = None) -> grpc.GenericRpcHandler:
    """The RPCs of the service, each behind the boundary. Each method of the contract needs a behaviour."""
    metrics = metrics or Metrics()
    methods = pb.DESCRIPTOR.services_by_name["PulseService"].methods
    missing = {method.name for method in methods} ^ behaviours.keys()
    if missing:
        raise ValueError(f"the contract and the handlers differ in {', '.join(sorted(missing))}")
    table = {}
    for method in methods:
        guarded = _guarded(method.name, behaviours[method.name], metrics, is_stream=method.server_streaming)
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        table[method.name] = make(
            guarded,
            request_deserializer=_parser(getattr(pb, method.input_type.name)),
            response_serializer=getattr(pb, method.output_type.name).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE, table)


class _Malformed:
    """Stands for a request that is not a message of its type."""


_MALFORMED = _Malformed()


def _parser(message_type: type[Message]) -> Callable[[bytes], Message | _Malformed]:
    # An exception in here would be answered as INTERNAL, though the fault is the caller's.
    def parse(data: bytes) -> Message | _Malformed:
        try:
            return message_type.FromString(data)
        except (DecodeError, ValueError, RecursionError):
            return _MALFORMED

    return parse


def _guarded(name: str, behaviour: Behaviour, metrics: Metrics, *, is_stream: bool) -> Behaviour:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        began = perf_counter()
        code = grpc.StatusCode.OK
        try:
            if request is _MALFORMED:
                code = grpc.StatusCode.INVALID_ARGUMENT
                await abort(
                    context,
                    code,
                    f"This is not a valid {name}Request. Encode it with pulse.proto, strings in UTF-8.",
                )
            return await behaviour(request, context)
        except errors.PulseError as error:
            code = status_of(error)
            await abort(context, code, str(error))
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.InternalError:
            # What gRPC raises when a message could not be handed over: the caller has left.
            code = grpc.StatusCode.CANCELLED
        except Exception:
            code = grpc.StatusCode.INTERNAL
            await _answer_for_a_bug(name, context)
        finally:
            metrics.rpcs.add(name, code.name)
            if not is_stream:
                metrics.rpc_time.observe(name, value=perf_counter() - began)

    return call


async def _answer_for_a_bug(name: str, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
    log.exception("call_failed", extra={"method": name})
    await abort(
        context, grpc.StatusCode.INTERNAL, "The server met an error of its own; its log has the details."
    )


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, sentence: str
) -> NoReturn:
    await context.abort(code, sentence, trailing_metadata=_SAID_BY_PULSED)
    raise AssertionError("abort always raises")
