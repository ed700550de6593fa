"""Messages: made of values of an application, which are checked, and read as the data that verbs return."""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from pulse import tuning
from pulse.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

LONGEST = timedelta(days=3650)
"""The longest delay that pulsed accepts. A result with a longer one would be refused, and lost."""


def check_duration(
    name: str, value: object, *, example: str = "minutes=5", may_be_zero: bool = False
) -> None:
    """Raise InvalidArgument unless the value is a timedelta above zero, or zero, of at most ten years."""
    check_timedelta(name, value, example=example)
    assert isinstance(value, timedelta)
    if value < timedelta(0) and may_be_zero:
        raise InvalidArgument(f"{name} cannot lie in the past, but {value} was given.")
    if value <= timedelta(0) and not may_be_zero:
        raise InvalidArgument(f"{name} has to be positive, but {value} was given.")


def check_timedelta(name: str, value: object, *, example: str = "minutes=5") -> None:
    """Raise InvalidArgument unless the value is a timedelta of at most ten years."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidArgument(f"{name} has to be a timedelta: write timedelta(seconds={value}).")
    if not isinstance(value, timedelta):
        raise InvalidArgument(
            f"{name} has to be a timedelta, such as timedelta({example}), but {value!r} was given."
        )
    if value > LONGEST:
        raise InvalidArgument(f"{name} has to be at most {LONGEST.days} days, but {value} was given.")


def check_payload(payload: bytes) -> None:
    """Raise InvalidArgument for a payload that pulsed refuses, or that does not fit into a message."""
    if len(payload) > tuning.PAYLOAD_BYTES:
        raise InvalidArgument(
            f"payload has {len(payload)} bytes; {tuning.PAYLOAD_BYTES} are allowed at the most. "
            "Store large data elsewhere and send a reference to it."
        )


def check_aware(name: str, moment: datetime, sign: str = "+") -> None:
    """Raise InvalidArgument for a datetime without a time zone."""
    if moment.utcoffset() is None:
        raise InvalidArgument(
            f"{name} has no time zone. Use an aware datetime, such as datetime.now(UTC) {sign} …."
        )


def check_items(items: object) -> None:
    """Raise InvalidArgument for one item in place of a list: its keys or characters would each make a job."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise InvalidArgument(
            f"items has to be a list, one item for each job, but {reprlib.repr(items)} was given."
        )


def check_unicode(what: str, name: str) -> None:
    """Raise InvalidArgument for a text with a lone surrogate: no server could receive it."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{what} {name!r} cannot be stored: its character {error.start} is a lone surrogate. Decode the "
            "text as UTF-8, or replace the character."
        ) from None


# The fields of a request that pulse.sql passes to the functions of the database.
_TAKEN_BY_SQL = {
    "topic",
    "payload",
    "priority",
    "job_id",
    "idempotency_key",
    "run_at",
    "delay",
    "max_attempts",
    "max_attempts_is_default",
    "metadata",
    "start_within",
    "lane",
    "unique",
}


def storable(request: pb.SubmitJobRequest) -> pb.SubmitJobRequest:
    """Return the request. Raises InvalidArgument for what cannot be stored in a transaction.

    That is a NUL, with the sentence of a server: a driver of Postgres would raise an error of its own. And an
    option that the functions of the database do not take: it would be lost.
    """
    for field, _ in request.ListFields():
        if field.name not in _TAKEN_BY_SQL:
            raise InvalidArgument(
                f"{field.name} is not for jobs that are stored in a transaction: enqueue it with a client."
            )
    texts = {
        "topic": [request.topic],
        "key": [request.idempotency_key],
        "lane": [request.lane],
        "unique.key": [request.unique.key],
        "metadata": [*request.metadata, *request.metadata.values()],
    }
    for name, values in texts.items():
        if any("\0" in text for text in values):
            raise InvalidArgument(f"{name} contains a NUL character, which cannot be stored.")
    return request


def existing_id(id_: str, noun: str = "job") -> str:
    """Return the id of a job that should be there. Raises NotFound for a text that can be no job's id."""
    if not isinstance(id_, str):
        given = reprlib.repr(id_)
        raise InvalidArgument(f"{noun}_id has to be a string, but {given} was given{_as_string(id_)}.")
    if id_:  # else it is a mistake, which the request refuses
        try:
            UUID(id_)
        except ValueError:
            raise NotFound(f"There is no {noun} {reprlib.repr(id_)}: ids of {noun}s are UUIDs.") from None
    return id_


def _as_string(id_: object) -> str:
    """Return how to write the value as an id, if it has one: a UUID, or the handle of a job."""
    if isinstance(id_, UUID):
        return ": write str(…)"
    return ": write its .id" if isinstance(getattr(id_, "id", None), str) else ""


Message = TypeVar("Message")

# The errors of protobuf for a value that a field cannot hold.
_REFUSALS = (TypeError, ValueError, OverflowError, AttributeError)

# What protobuf reports for a value in a field of strings.
_NO_STRING = "bad argument type for built-in operation"


def message(kind: Callable[..., Message], **fields: Any) -> Message:
    """Return the message. Raises InvalidArgument with the name of a field that cannot be sent."""
    try:
        return kind(**fields)
    except _REFUSALS as error:
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except _REFUSALS as refusal:
                why = "only strings are allowed" if str(refusal) == _NO_STRING else refusal
                raise InvalidArgument(f"{name}={reprlib.repr(value)} cannot be sent: {why}.") from None
        raise InvalidArgument(f"This cannot be sent: {error}.") from None


Data = TypeVar("Data")
Item = TypeVar("Item")
Read = Callable[[Any], Any]


class Items(Generic[Item]):
    """A dataclass whose first field has its items."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def _items(self) -> tuple[Item, ...]:
        items: tuple[Item, ...] = getattr(self, dataclasses.fields(self)[0].name)  # type: ignore[arg-type]
        return items


class Reader(Generic[Data]):
    """Makes an object of a dataclass from a message.

    Each field of the class is read from the field of the message with the same name. `ways` has the other
    name of a field, or a function of the message that returns its value. A field of another dataclass is
    read by the reader of that class.
    """

    def __init__(self, kind: type[Data], **ways: str | Read) -> None:
        self._kind = kind
        self._ways = ways
        _readers[kind] = self

    def __call__(self, message: Any) -> Data:
        return self._kind(**{name: read(message) for name, read in self._reads(message.DESCRIPTOR)})

    @functools.cache  # noqa: B019 - readers live as long as the process
    def _reads(self, descriptor: Any) -> list[tuple[str, Read]]:
        # Not before the first message: annotations may name classes that come later in their module.
        return [
            (name, way if callable(way) else _read(descriptor.fields_by_name[way], kind))
            for name, kind in typing.get_type_hints(self._kind).items()
            for way in (self._ways.get(name, name),)
        ]


_readers: dict[Any, Reader[Any]] = {}


def _read(field: Any, annotation: Any) -> Read:
    """Return the function from a message to the value of this field, as the annotation has it."""
    get = operator.attrgetter(field.name)
    kind, is_optional = _without_none(annotation)
    if typing.get_origin(kind) is Mapping:
        return lambda message: dict(get(message))
    if typing.get_origin(kind) in (tuple, frozenset):
        collect, convert = typing.get_origin(kind), _converter(field, typing.get_args(kind)[0])
        return lambda message: collect(map(convert, get(message)) if convert else get(message))
    convert = _converter(field, kind)
    if is_optional and field.has_presence:
        name = field.name
        if convert is None:
            return lambda message: get(message) if message.HasField(name) else None
        return lambda message: convert(get(message)) if message.HasField(name) else None
    if is_optional:
        made = convert or (lambda value: value)
        return lambda message: made(value) if (value := get(message)) else None
    return get if convert is None else lambda message: convert(get(message))


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        kinds = [kind for kind in typing.get_args(annotation) if kind is not types.NoneType]
        return kinds[0], len(kinds) < len(typing.get_args(annotation))
    return annotation, False


def _converter(field: Any, kind: Any) -> Read | None:
    """Return the function that makes this kind from a value of a message. None: it is that already."""
    if kind is datetime:
        return lambda stamp: stamp.ToDatetime(tzinfo=UTC)
    if kind is timedelta:
        return lambda duration: duration.ToTimedelta()
    if dataclasses.is_dataclass(kind) and field.message_type is not None:
        return _readers.get(kind) or Reader(typing.cast("type[Any]", kind))
    is_made = dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, Enum))
    return typing.cast("Read", kind) if is_made else None
