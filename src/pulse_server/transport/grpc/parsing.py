"""Parses requests: large ones in turns of the event loop, and none with hundreds of thousands of fields.

A list entry takes two bytes on the wire and 150 in memory, wherever it is nested. Protobuf merges
repeats of a message, so each repeat lets nested lists grow: 30 MiB became 2.4 GB and blocked the
event loop for 10 s.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from google.protobuf.message import DecodeError, Message

from pulse_server.transport.grpc.wire_walk import PARSE_TURN_BYTES, TooManyFields, Walk, shape_of

# The most that a field takes once it is parsed.
FIELD_BYTES = 150


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
        self._walk: Walk | None = None
        self._error: Unreadable | None = None
        self.size = len(data)

    async def weigh(self) -> int:
        """Return about how many bytes the request takes once it is parsed. Other calls are served in between.

        A request that fits into one turn is not counted.
        """
        if self.size <= PARSE_TURN_BYTES or self._walk is not None:
            return self.size + (self._walk.fields * FIELD_BYTES if self._walk else 0)
        self._walk = Walk(self._parser.shape)
        try:
            for _turn in self._walk.turns(self._data):
                await asyncio.sleep(0)
        except (ValueError, IndexError):
            self._refuse(self._parser.unreadable)
        except TooManyFields:
            self._refuse(self._parser.unreadable._replace(has_too_many_fields=True))
        return await self.weigh() if self._error is None else 0

    async def parse(self) -> Message | Unreadable:
        """Parse the request, and forget its bytes. Other calls are served in between."""
        await self.weigh()
        if self._error is not None:
            return self._error
        data, self._data = self._data, b""
        try:
            if self._walk is None:
                return self._parser.message_type.FromString(data)
            message = self._parser.message_type()
            for piece in self._walk.pieces:
                message.MergeFromString(piece.cut_from(data))
                await asyncio.sleep(0)
        except (DecodeError, ValueError, RecursionError):
            return self._parser.unreadable
        return message

    def _refuse(self, error: Unreadable) -> None:
        self._error = error
        self._data = b""
