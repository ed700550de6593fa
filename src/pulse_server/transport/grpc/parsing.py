"""Parses requests, but none with hundreds of thousands of fields.

A list entry takes two bytes on the wire and 150 in memory, wherever it is nested. Protobuf merges
repeats of a message, so each repeat lets nested lists grow: 4 MiB become 300 MB and block the event loop.
So the fields of a large request are counted before it is parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError, Message

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
