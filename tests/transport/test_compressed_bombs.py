"""A message that grows a thousandfold when decompressed is refused, and never decompressed as a whole."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from tests.transport.authorized import USERS, basic
from tests.transport.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    header_block,
    next_frame,
    opening,
    usual_headers,
)
from tests.transport.pulse_server_under_test import server_under_test

MEGABYTE = 1 << 20
UNPACKED_MEGABYTES = 1_000
# The limit of a message is 4 MiB. What else the process does meanwhile has room in this.
MOST_GROWTH_MEGABYTES = 300
RESOURCE_EXHAUSTED, UNAUTHENTICATED = b"8", b"16"
SUBMIT = b"/pulse.v1.PulseService/SubmitJob"


def bomb() -> bytes:
    """Return zeros as a compressed gRPC message."""
    packing = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabyte = packing.compress(bytes(MEGABYTE)) + packing.flush(zlib.Z_FULL_FLUSH)  # stands by itself
    ending = b"\x03\x00" + bytes(8)
    packed = b"\x1f\x8b\x08" + bytes(7) + megabyte * UNPACKED_MEGABYTES + ending
    return b"\1" + len(packed).to_bytes(4, "big") + packed


def peak_megabytes() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024


async def send(address: str, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    """Send a call as fast as the server reads. Returns its trailers."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(opening() + frame(HEADERS, END_HEADERS, 1, header_block(headers)))
    room = {0: 65_535, 1: 65_535}
    first_room, sent, answer = 65_535, 0, b""
    try:
        while True:
            while sent < len(body) and (size := min(16_384, len(body) - sent, *room.values())) > 0:
                is_last = sent + size == len(body)
                writer.write(frame(DATA, END_STREAM if is_last else 0, 1, body[sent : sent + size]))
                sent += size
                room = {stream: left - size for stream, left in room.items()}
            kind, flags, stream, content = await next_frame(reader)
            if kind == WINDOW_UPDATE:
                room[stream] += int.from_bytes(content, "big")
            elif kind == SETTINGS and not flags:
                for at in range(0, len(content), 6):
                    if content[at : at + 2] == b"\0\4":  # the first room of a stream
                        room[1] += int.from_bytes(content[at + 2 : at + 6], "big") - first_room
                        first_room = int.from_bytes(content[at + 2 : at + 6], "big")
                writer.write(frame(SETTINGS, 1, 0))
            elif kind == PING and not flags:
                writer.write(frame(PING, 1, 0, content))
            elif kind == HEADERS:
                answer += content
            if kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
                return answer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("path", "authorization", "statuses"),
    [
        (SUBMIT, None, (UNAUTHENTICATED, RESOURCE_EXHAUSTED)),
        (b"/grpc.health.v1.Health/Check", None, (RESOURCE_EXHAUSTED,)),
        (SUBMIT, dict(basic("producer"))["authorization"], (RESOURCE_EXHAUSTED,)),
    ],
    ids=["without a password", "health", "of a user"],
)
async def test_bomb_is_refused_without_being_decompressed(
    database_dsn: str, path: bytes, authorization: str | None, statuses: tuple[bytes, ...]
) -> None:
    headers = [*usual_headers(path), (b"grpc-encoding", b"gzip")]
    if authorization is not None:
        headers.append((b"authorization", authorization.encode()))
    async with server_under_test(database_dsn, users=USERS) as server:
        body, before = bomb(), peak_megabytes()
        async with asyncio.timeout(60):
            answer = await send(server.address, headers, body)
    assert any(b"grpc-status" + bytes([len(status)]) + status in answer for status in statuses), answer
    assert peak_megabytes() - before < MOST_GROWTH_MEGABYTES
