"""Parses requests: large ones in turns of the event loop, and none with millions of entries.

An entry of a list takes two bytes on the wire and a hundred in memory: 32 MiB of empty jobs would take 1.9 GB
and block the event loop for two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from pulse_server.domain import limits

# What is parsed in one turn of the event loop, some 10 ms at the worst.
PARSE_TURN_BYTES = 256 * 1024

# The longest list of the contract, and other fields.
_MOST_FIELDS = limits.MAX_CLAIMS_PER_HEARTBEAT + 5_000


class Unreadable(NamedTuple):
    """A request that is not a valid message of its type."""

    meant: str
    contract: str
    """The file that describes the type."""
    has_too_many_fields: bool = False


class _Field(NamedTuple):
    number: int
    begin: int
    value: int
    end: int


class _TooManyFields(Exception):
    pass


class Parser:
    """Parses requests of one type. Never raises: it returns Unreadable, which the handler refuses."""

    def __init__(self, message_type: type[Message]) -> None:
        self._type = message_type
        described = message_type.DESCRIPTOR
        self._unreadable = Unreadable(described.name, described.file.name.rpartition("/")[2])

    # gRPC would answer an exception with INTERNAL, though the request is invalid.
    def __call__(self, data: bytes) -> Message | Unreadable:
        try:
            if len(data) > PARSE_TURN_BYTES:
                _Walk().count(self._type.DESCRIPTOR, data, 0, len(data))
            return self._type.FromString(data)
        except (DecodeError, ValueError, RecursionError, IndexError):
            return self._unreadable
        except _TooManyFields:
            return self._unreadable._replace(has_too_many_fields=True)

    async def in_turns(self, box: list[bytes]) -> Message | Unreadable:
        """Parse the bytes in the box, and remove them. Other calls are served in between."""
        data = box.pop()
        if len(data) <= PARSE_TURN_BYTES:
            return self(data)
        message = self._type()
        try:
            for begin, end in _Walk().pieces(self._type.DESCRIPTOR, data):
                message.MergeFromString(data[begin:end])
                await asyncio.sleep(0)
        except (DecodeError, ValueError, RecursionError, IndexError):
            return self._unreadable
        except _TooManyFields:
            return self._unreadable._replace(has_too_many_fields=True)
        return message


class _Walk:
    """Walks over the fields of a message without building objects."""

    def __init__(self) -> None:
        self._left = _MOST_FIELDS

    def pieces(self, described: Any, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the bounds of pieces that consist of whole fields and can be parsed in one turn."""
        begin = 0
        for field in self._fields(data, 0, len(data)):
            if field.end - begin > PARSE_TURN_BYTES:
                self._count_within(described, data, field)
                yield begin, field.end
                begin = field.end
        yield begin, len(data)

    def count(self, described: Any, data: bytes, begin: int, end: int) -> None:
        """Raise _TooManyFields if the message and its large parts have more fields than any valid one."""
        for field in self._fields(data, begin, end):
            self._count_within(described, data, field)

    def _count_within(self, described: Any, data: bytes, field: _Field) -> None:
        if field.end - field.value > PARSE_TURN_BYTES:
            known = described.fields_by_number.get(field.number)
            if known is not None and known.message_type is not None:
                self.count(known.message_type, data, field.value, field.end)

    def _fields(self, data: bytes, begin: int, end: int) -> Iterator[_Field]:
        at = begin
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _TooManyFields
            start = at
            key, at = _varint(data, at)
            value = at
            match key & 7:  # the wire type
                case 0:
                    _, at = _varint(data, at)
                case 1:
                    at += 8
                case 2:
                    length, value = _varint(data, at)
                    at = value + length
                case 5:
                    at += 4
            yield _Field(key >> 3, start, value, at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at the position, and the position after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number = shift = 0
    while byte >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise ValueError("not a varint")
        at += 1
        byte = data[at]
    return number | byte << shift, at + 1
