"""Makes the data that verbs return from messages, by the fields of its classes."""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

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
