"""Walks over a serialized message without building objects: counts its fields, and cuts it into pieces."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

# Bytes parsed in one turn of the event loop: 10 ms at the worst, for 131,072 fields.
PARSE_TURN_BYTES = 256 * 1024
_PARSE_TURN_FIELDS = PARSE_TURN_BYTES // 2
# Fields counted in one turn, 1 to 8 ms.
_COUNT_TURN_FIELDS = 2048
# The most fields of a message, at all levels. 10,000 jobs or results with 25 fields each have
# fewer. So has the largest batch of the SDK: 2 MiB of metadata entries of one character.
MOST_FIELDS = 400_000
# Claims or map entries that are not in an entry of a list: three lists of 20,000. A larger map blocks the
# event loop when it grows.
MOST_LOOSE_ENTRIES = 65_000
# Of the wire types of fixed size.
_FIXED_BYTES = {1: 8, 5: 4}


class TooManyFields(Exception):
    pass


class Shape:
    """The message fields of a type, each with its shape."""

    def __init__(self, described: Any) -> None:
        self.nested = {
            field.number: shape_of(field.message_type)
            for field in described.fields
            if field.message_type is not None
        }
        definition = DescriptorProto()
        described.CopyToProto(definition)
        repeated = FieldDescriptorProto.LABEL_REPEATED
        self.lists = {field.number for field in definition.field if field.label == repeated}


@cache
def shape_of(described: Any) -> Shape:
    return Shape(described)


class Piece(NamedTuple):
    """Whole fields of a message, which are parsed in one turn."""

    begin: int
    end: int
    path: tuple[int, ...]
    """The numbers of the messages that they are nested in, the outermost first."""

    def cut_from(self, data: bytes) -> bytes:
        """Return the piece as a message of the outermost type. All pieces, merged in order, are the whole."""
        size = self.end - self.begin
        head = b""
        for number in reversed(self.path):
            head = _encoded(number << 3 | 2) + _encoded(size + len(head)) + head
        return b"".join((head, memoryview(data)[self.begin : self.end]))


class _Level:
    """A message that is walked over. Without a path, it is part of one piece of a message around it."""

    __slots__ = ("begin", "end", "fields_before", "is_listed", "lists", "nested", "path", "start")

    def __init__(self, shape: Shape, start: int, begin: int, end: int, path: tuple[int, ...] | None) -> None:
        self.nested = shape.nested
        self.lists = shape.lists
        self.start = start
        self.begin = begin  # of the next piece
        self.end = end
        self.path = path
        self.fields_before = 0
        self.is_listed = False  # it is in an entry of a list


class Walk:
    """The fields and the pieces of one message."""

    def __init__(self, shape: Shape) -> None:
        self.fields = 0
        self.pieces: list[Piece] = []
        self._shape = shape
        self._outer: list[_Level] = []

    def turns(self, data: bytes) -> Iterator[None]:
        """Walk over the message, a part of it in each turn.

        Raises TooManyFields at the first field too many, whatever its level, and ValueError or IndexError for
        bytes that are not a message.
        """
        level = _Level(self._shape, 0, 0, len(data), ())
        at = loose = 0
        for count in range(MOST_FIELDS + 1):
            while at >= level.end:
                if at > level.end:
                    raise ValueError("a field is longer than its message")
                self.fields = count
                if not self._outer:
                    self._cut(level, at)
                    return
                level = self._leave(level)
            if not count % _COUNT_TURN_FIELDS:
                yield
            start = at
            key = data[at]
            at += 1
            if key >= 0x80:
                key, at = _varint(data, start)
            kind = key & 7  # the wire type
            if kind == 2:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = _varint(data, at - 1)
                number = key >> 3
                if number in level.nested:
                    # A small entry without messages in it is one field.
                    if number not in level.lists or level.nested[number].nested or size > PARSE_TURN_BYTES:
                        self.fields = count
                        level = self._enter(level, number, start, at, at + size)
                        continue
                    loose += not level.is_listed
                    if loose > MOST_LOOSE_ENTRIES:
                        raise TooManyFields
                at += size
            elif kind == 0:
                while data[at] >= 0x80:
                    at += 1
                at += 1
            elif kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
            if at - level.begin > PARSE_TURN_BYTES:
                self._cut(level, start)
        raise TooManyFields

    def _enter(self, level: _Level, number: int, start: int, begin: int, end: int) -> _Level:
        """Walk over the nested message next. A large one that is not of a list can be cut."""
        path = None
        if level.path is not None and end - begin > PARSE_TURN_BYTES and number not in level.lists:
            self._cut(level, start)
            level.begin = end
            path = (*level.path, number)
        nested = _Level(level.nested[number], start, begin, end, path)
        nested.fields_before = self.fields
        nested.is_listed = level.is_listed or number in level.lists
        self._outer.append(level)
        return nested

    def _leave(self, level: _Level) -> _Level:
        """Return to the message around it."""
        outer = self._outer.pop()
        if level.path is not None:
            self._cut(level, level.end)
        elif outer.path is not None and level.end - outer.begin > PARSE_TURN_BYTES:
            self._cut(outer, level.start)
            # It is parsed as a whole, so it must not have more fields than a turn can have.
            if self.fields - level.fields_before > _PARSE_TURN_FIELDS:
                raise TooManyFields
        return outer

    def _cut(self, level: _Level, end: int) -> None:
        """End the piece that begins in this message."""
        if level.path is not None and end > level.begin:
            self.pieces.append(Piece(level.begin, end, level.path))
            level.begin = end


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


def _encoded(number: int) -> bytes:
    """Return the number as a varint."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
