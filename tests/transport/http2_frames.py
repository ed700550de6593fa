"""HTTP/2 frames, for requests that no client library sends."""

import asyncio
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Kinds of frames, and their flags.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, END_HEADERS = 0x1, 0x4
ACK = 0x1

Header = tuple[bytes, bytes]


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def opening() -> bytes:
    """Return the connection preface of a client."""
    return PREFACE + frame(SETTINGS, 0, 0)


def usual_headers(path: bytes) -> list[Header]:
    """Return the headers of a call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"test"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]


def header_block(headers: Iterable[Header]) -> bytes:
    """Encode the headers without index and compression."""
    return b"".join(b"\0" + _counted(name) + _counted(value) for name, value in headers)


def message(data: bytes = b"") -> bytes:
    """Return a gRPC message: the compression flag, the length and the bytes."""
    return b"\0" + len(data).to_bytes(4, "big") + data


def call_of(
    stream: int, path: bytes, body: bytes | None = None, headers: Iterable[Header] | None = None
) -> bytes:
    """Return a call with one empty message, or with this body."""
    block = header_block(usual_headers(path) if headers is None else headers)
    return frame(HEADERS, END_HEADERS, stream, block) + frame(
        DATA, END_STREAM, stream, message() if body is None else body
    )


async def next_frame(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    """Return kind, flags, stream and body of the next frame. IncompleteReadError at the end."""
    head = await reader.readexactly(9)
    body = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, body


def _counted(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest = len(text) - 127
    digits = bytearray([127])
    while rest > 127:
        digits.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*digits, rest]) + text
