"""Where the bytes of a request become a message: large ones in turns, and none with millions of entries.

An entry of a list takes two bytes on the wire and a hundred in memory: 32 MiB of empty jobs were 1.9 GB, and
two seconds of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from pulse_server import tuning
from pulse_server.domain import limits

# The longest list of the contract, and the other fields around it.
_MOST_FIELDS = limits.MAX_CLAIMS_PER_HEARTBEAT + 5_000


class Unreadable(NamedTuple):
    """Stands for a request that is not a message of its type."""

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
    """Reads requests of one type. Never raises: what cannot be read is answered by the handler."""

    def __init__(self, message_type: type[Message]) -> None:
        self._type = message_type
        described = message_type.DESCRIPTOR
        self._unreadable = Unreadable(described.name, described.file.name.rpartition("/")[2])

    # An exception in here would be answered as INTERNAL, though the fault is the caller's.
    def __call__(self, data: bytes) -> Message | Unreadable:
        try:
            if len(data) > tuning.PARSE_TURN_BYTES:
                _Walk().count(self._type.DESCRIPTOR, data, 0, len(data))
            return self._type.FromString(data)
        except (DecodeError, ValueError, RecursionError, IndexError):
            return self._unreadable
        except _TooManyFields:
            return self._unreadable._replace(has_too_many_fields=True)

    async def in_turns(self, box: list[bytes]) -> Message | Unreadable:
        """The message of the bytes in the box, which are let go. Others are served while it is read."""
        data = box.pop()
        if len(data) <= tuning.PARSE_TURN_BYTES:
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
    """Goes over a message field by field, without making anything of them."""

    def __init__(self) -> None:
        self._left = _MOST_FIELDS

    def pieces(self, described: Any, data: bytes) -> Iterator[tuple[int, int]]:
        """Where to cut: each piece has whole fields, of about a turn's worth of bytes."""
        begin = 0
        for field in self._fields(data, 0, len(data)):
            if field.end - begin > tuning.PARSE_TURN_BYTES:
                self._count_within(described, data, field)
                yield begin, field.end
                begin = field.end
        yield begin, len(data)

    def count(self, described: Any, data: bytes, begin: int, end: int) -> None:
        """_TooManyFields for a message, or a large one within it, that has more than any of ours."""
        for field in self._fields(data, begin, end):
            self._count_within(described, data, field)

    def _count_within(self, described: Any, data: bytes, field: _Field) -> None:
        if field.end - field.value > tuning.PARSE_TURN_BYTES:
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
            match key & 7:  # by the kind of its value
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
    """The number that begins there, and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number = shift = 0
    while byte >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise ValueError("not a number of the wire")
        at += 1
        byte = data[at]
    return number | byte << shift, at + 1
