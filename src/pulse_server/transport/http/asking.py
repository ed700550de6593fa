"""Asks another process of this machine for a page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from pulse_server import tuning


class NoAnswer(Exception):
    """The process does not answer, or not in time, or not in HTTP."""


class Told(NamedTuple):
    status: int
    body: bytes


async def ask(socket_file: Path, path: str, accept: str = "*/*") -> Told:
    """Read a page from whoever listens on the socket; NoAnswer if that cannot be done in time."""
    try:
        async with asyncio.timeout(tuning.HTTP_GATHER_TIMEOUT.total_seconds()):
            text = await _ask(socket_file, path, accept)
    except (OSError, TimeoutError):
        raise NoAnswer from None
    head, separator, body = text.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not separator or len(words) < 3 or not words[1].isdigit():
        raise NoAnswer
    return Told(int(words[1]), body)


async def _ask(socket_file: Path, path: str, accept: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket_file)
    try:
        lines = [f"GET {path} HTTP/1.1", "Host: pulsed", f"Accept: {accept}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1"))
        await writer.drain()
        chunks: list[bytes] = []
        room = tuning.HTTP_GATHER_BYTES
        while chunk := await reader.read(64 * 1024):
            chunks.append(chunk)
            room -= len(chunk)
            if room < 0:
                raise NoAnswer
        return b"".join(chunks)
    finally:
        writer.transport.abort()
