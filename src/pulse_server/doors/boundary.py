"""The boundary of the server: parses requests, and maps errors to gRPC statuses.

Moments and durations are converted here. A request with hundreds of thousands of fields is refused. A list
entry takes two bytes on the wire and 150 in memory, wherever it is nested. Protobuf merges repeats of a
message, so each repeat lets nested lists grow: 4 MiB become 300 MB and block the event loop. So the fields of
a large request are counted before it is parsed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple, NoReturn, TypeAlias

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import errors
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.metrics import Metrics

# A request up to this size is not counted: 10 ms and 19 MB at the worst, for 131,072 fields.
UNCOUNTED_BYTES = 256 * 1024
# The most fields of a request, at all levels: 28 ms at the worst. 10,000 jobs or results with 9 fields each
# have no more, and 1,000 jobs with all metadata that they may have fewer.
MOST_FIELDS = 100_000
# The most that a field takes once it is parsed.
FIELD_BYTES = 150
# An entry without messages in it is one field, unless it is larger: a list of texts may be in it.
SMALL_ENTRY_BYTES = 4 * 1024
# Fields counted in one turn of the event loop, 1 to 8 ms.
_TURN_FIELDS = 2048
# Of the wire types of fixed size.
_FIXED_BYTES = {1: 8, 5: 4}

# The message fields of a type by number, each with its own.
Shape: TypeAlias = "dict[int, Shape]"


@cache
def shape_of(described: Any) -> Shape:
    return {
        field.number: shape_of(field.message_type)
        for field in described.fields
        if field.message_type is not None
    }


class Unreadable(NamedTuple):
    """A request that is not a valid message of its type."""

    meant: str
    contract: str
    """The file that describes the type."""
    has_too_many_fields: bool = False


class Parser:
    """Parses requests of one type. Never raises: an Unreadable is refused by the handler."""

    def __init__(self, message_type: type[Message]) -> None:
        described = message_type.DESCRIPTOR
        self.message_type = message_type
        self.shape = shape_of(described)
        self.unreadable = Unreadable(described.name, described.file.name.rpartition("/")[2])

    # The deserializer of gRPC, which calls it in the event loop: nothing is parsed here.
    def __call__(self, data: bytes) -> Unparsed:
        return Unparsed(self, data)


class Unparsed:
    """The bytes of a request until it is parsed."""

    def __init__(self, parser: Parser, data: bytes) -> None:
        self._parser = parser
        self._data = data
        self._weight: int | None = None
        self._error: Unreadable | None = None

    async def weigh(self) -> int:
        """Return about how many bytes the request takes once it is parsed. Other calls are served in between.

        The fields of a small request are not counted.
        """
        if self._weight is None:
            self._weight = len(self._data)
            if self._weight > UNCOUNTED_BYTES:
                self._weight += FIELD_BYTES * await self._count()
        return self._weight

    async def parse(self) -> Message | Unreadable:
        """Parse the request, and forget its bytes."""
        await self.weigh()
        data, self._data = self._data, b""
        if self._error is not None:
            return self._error
        try:
            return self._parser.message_type.FromString(data)
        except (DecodeError, ValueError, RecursionError):
            return self._parser.unreadable

    async def _count(self) -> int:
        """Return the number of fields. The request is refused if there are too many."""
        fields = 0
        try:
            for fields in counted(self._parser.shape, self._data):
                if fields > MOST_FIELDS:
                    self._error = self._parser.unreadable._replace(has_too_many_fields=True)
                    break
                await asyncio.sleep(0)
        except (ValueError, IndexError):
            self._error = self._parser.unreadable
        return 0 if self._error else fields


def counted(shape: Shape, data: bytes) -> Iterator[int]:
    """Count the fields of a serialized message, at all levels. Yields the sum of each turn, and at the end.

    Raises ValueError or IndexError for bytes that are not a message.
    """
    outer: list[tuple[Shape, int]] = []
    end, at, count = len(data), 0, 0
    while True:
        while at >= end:
            if at > end:
                raise ValueError("a field is longer than its message")
            if not outer:
                yield count
                return
            shape, end = outer.pop()
        count += 1
        if not count % _TURN_FIELDS:
            yield count
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = _varint(data, at - 1)
        kind = key & 7  # the wire type
        if kind == 2:
            size = data[at]
            at += 1
            if size >= 0x80:
                size, at = _varint(data, at - 1)
            nested = shape.get(key >> 3)
            if nested or (nested is not None and size > SMALL_ENTRY_BYTES):
                outer.append((shape, end))
                shape, end = nested, at + size
            else:
                at += size
        elif kind == 0:
            while data[at] >= 0x80:
                at += 1
            at += 1
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at the position, and the position after it."""
    number = shift = 0
    byte = data[at]
    while byte >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise ValueError("not a varint")
        at += 1
        byte = data[at]
    return number | byte << shift, at + 1


def moment(timestamp: Timestamp, field: str) -> datetime:
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "is not a valid timestamp.") from None


def duration(span: Duration, field: str) -> timedelta:
    try:
        return span.ToTimedelta()
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "is not a valid duration.") from None


def wire_duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message


def timestamp(when: datetime | None) -> Timestamp | None:
    return None if when is None else exact_timestamp(when)


def exact_timestamp(when: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(when)
    return message


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
