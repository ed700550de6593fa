"""Sends an input and returns the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import grpc

from faults.fuzzing.answers import Answer, Reaction
from faults.fuzzing.contract import BY_PATH
from faults.fuzzing.inputs import Call, Wire
from tests.transport.http2_frames import HEADERS, next_frame

# ---------------------------------------------------------------- trailers
# Reads the status of a call from the frames of a bare connection.


# HPACK's own table (RFC 7541): entries that are not used here, except for the statuses of HTTP.
_STATIC = [("", "")] * 61
_STATIC[7:14] = [(":status", code) for code in ("200", "204", "206", "304", "400", "404", "500")]

_INDEXED, _REMEMBERED, _RESIZED = 0x80, 0x40, 0x20


class Unreadable(Exception):
    """The block has an encoding that is not supported here."""


class HeaderReader:
    """Reads the blocks of headers of one connection, in their order: later ones refer to earlier ones."""

    def __init__(self) -> None:
        self._dynamic: list[tuple[str, str]] = []

    def read(self, block: bytes) -> dict[str, str]:
        headers: dict[str, str] = {}
        place = 0
        while place < len(block):
            first = block[place]
            if first & _INDEXED:
                index, place = _number(block, place, 7)
                name, value = self._entry(index)
            elif not first & _REMEMBERED and first & _RESIZED:
                _, place = _number(block, place, 5)
                continue
            else:
                remembers = bool(first & _REMEMBERED)
                index, place = _number(block, place, 6 if remembers else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, place = _text(block, place)
                value, place = _text(block, place)
                if remembers:
                    self._dynamic.insert(0, (name, value))
            headers[name] = value
        return headers

    def _entry(self, index: int) -> tuple[str, str]:
        entries = _STATIC + self._dynamic
        if not 1 <= index <= len(entries):
            raise Unreadable
        return entries[index - 1]


def _number(block: bytes, place: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    number = block[place] & most
    place += 1
    if number < most:
        return number, place
    shift = 0
    while True:
        digit = block[place]
        number += (digit & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not digit & 0x80:
            return number, place


def _text(block: bytes, place: int) -> tuple[str, int]:
    if block[place] & 0x80:
        raise Unreadable  # with Huffman's code, which gRPC writes for binary values only
    length, place = _number(block, place, 7)
    return block[place : place + length].decode("latin-1"), place + length


# ---------------------------------------------------------------- sending


# On a healthy server no call takes a tenth of it; one that takes longer hangs.
PATIENCE_SECONDS = 30
# How long an endless stream is read: it has answered whether it accepts the request long before.
_LISTENING_SECONDS = 0.05
_CONNECTION_SECONDS = 0.1

# The client-side error of gRPC, instead of the status, if that came while a message was being written.
_MET_THE_END = (grpc.StatusCode.INTERNAL, "Internal error from Core")

_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # else two clients of one process would share a connection
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 1024 * 1024),
    ("grpc.absolute_max_metadata_size", 1024 * 1024),
)


@asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[grpc.aio.Channel]:
    """A connection without limits on its messages."""
    async with grpc.aio.insecure_channel(address, _OPTIONS) as channel:
        yield channel


async def send_call(channel: grpc.aio.Channel, call: Call) -> Answer:
    """Make the call. On the wire all four kinds of RPC look alike: messages go out, messages come back."""
    under_way = _begin(channel, call)
    received: list[bytes] = []
    try:
        if len(call.messages) != 1:
            await _write(under_way, call.messages)
        if call.hangs_up:
            under_way.cancel()
            return Answer(None)
        async with asyncio.timeout(None if _ends_by_itself(call) else _LISTENING_SECONDS):
            await _read(under_way, received)
    except TimeoutError:
        under_way.cancel()
        return Answer(None, messages=tuple(received))
    except grpc.aio.AioRpcError:
        pass  # its status is read below
    code, details = await under_way.code(), await under_way.details()
    if (code, details) == _MET_THE_END:
        return Answer(None, messages=tuple(received))
    said = dict(tuple(await under_way.trailing_metadata() or ()))  # pairs: not all of its versions map names
    return Answer(code, details or "", said.get("pulse-answer") == "1", tuple(received))


def _begin(channel: grpc.aio.Channel, call: Call) -> Any:
    if len(call.messages) == 1:
        one: Any = channel.unary_stream(call.path)
        return one(call.messages[0], metadata=call.metadata, timeout=PATIENCE_SECONDS)
    several: Any = channel.stream_stream(call.path)
    return several(metadata=call.metadata, timeout=PATIENCE_SECONDS)


def _ends_by_itself(call: Call) -> bool:
    """Whether the server ends it. For a unary call without a message, gRPC's server waits.

    A wait for jobs lasts until the last of them is finished.
    """
    rpc = BY_PATH.get(call.path)
    if rpc is None:
        return True
    if rpc.takes_stream:
        return not call.path.endswith("/AwaitJobs")
    return not rpc.answers_stream and bool(call.messages)


async def _write(under_way: Any, messages: tuple[bytes, ...]) -> None:
    try:
        for message in messages:
            await under_way.write(message)
        await under_way.done_writing()
    except asyncio.InvalidStateError:
        pass  # it was answered before everything was sent


async def _read(under_way: Any, received: list[bytes]) -> None:
    while (message := await under_way.read()) is not grpc.aio.EOF:
        received.append(message)


async def send_wire(address: str, wire: Wire) -> Reaction:
    """Connect, send the bytes, and listen for a moment. OSError if the connection is not accepted."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    heard = _Received()
    try:
        writer.write(wire.data)
        if not wire.stays:
            writer.write_eof()
        async with asyncio.timeout(_CONNECTION_SECONDS):
            await heard.listen(reader, until_answer=wire.stays)
    except OSError:
        pass  # nothing more came in time, or the server has cut the connection
    finally:
        writer.transport.abort()
    return Reaction(tuple(heard.answers), bytes(heard.data), heard.is_over)


class _Received:
    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.data = bytearray()
        self.is_over = False
        self._headers = HeaderReader()

    async def listen(self, reader: asyncio.StreamReader, *, until_answer: bool) -> None:
        """Read frames until the server ends the connection, or the first call if that is waited for."""
        try:
            while not (until_answer and self.answers):
                kind, _, _, body = await next_frame(reader)
                if kind != HEADERS or not self._read(body):
                    self.data += body
        except asyncio.IncompleteReadError as error:
            self.data += error.partial
            self.is_over = True

    def _read(self, block: bytes) -> bool:
        """Read the headers. False if their encoding is not supported here."""
        try:
            headers = self._headers.read(block)
        except (Unreadable, IndexError):
            return False
        if "grpc-status" in headers:
            code = next(code for code in grpc.StatusCode if code.value[0] == int(headers["grpc-status"]))
            details = unquote(headers.get("grpc-message", ""))
            self.answers.append(Answer(code, details, headers.get("pulse-answer") == "1"))
        return True
