"""Connections that were begun and never finished, held open while others are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from faults.fuzzing.contract import RPCS
from tests.transport.http2_frames import (
    DATA,
    END_HEADERS,
    HEADERS,
    PREFACE,
    frame,
    header_block,
    message,
    opening,
    usual_headers,
)

_EACH = 12
_CALL = frame(HEADERS, END_HEADERS, 1, header_block(usual_headers(RPCS[0].path.encode())))
# How far each of them got.
_BEGINNINGS = (
    b"",
    PREFACE[:12],
    opening(),
    opening() + _CALL[:30],
    opening() + _CALL,
    opening() + _CALL + frame(DATA, 0, 1, message(bytes(1000))[:500]),
)


@asynccontextmanager
async def crowd_at(address: str) -> AsyncIterator[int]:
    """Hold connections of every stage for the length of the block, which gets their number."""
    host, _, port = address.rpartition(":")
    writers: list[asyncio.StreamWriter] = []
    try:
        for beginning in _BEGINNINGS * _EACH:
            _, writer = await asyncio.open_connection(host, int(port))
            writers.append(writer)
            writer.write(beginning)
        yield len(writers)
    finally:
        for writer in writers:
            writer.transport.abort()
