"""Connections that no client would make: garbage, frames out of order, calls with broken headers."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from faults.fuzzing.contract import RPCS
from faults.fuzzing.inputs import Wire
from tests.transport.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    Header,
    call_of,
    frame,
    header_block,
    message,
    opening,
    usual_headers,
)

_PATHS = tuple(rpc.path.encode() for rpc in RPCS)
_ODD_PATHS = (
    b"/\xff\xfe/x",
    b"/a\0b/c",
    b"/",
    b"*",
    b"",
    b"no-slash",
    b"/" + b"x" * 20_000,
    b"/a/b/c",
    b"/\r\n",
)
# Headers that take the place of the usual one of that name, or are added.
_ODD_HEADERS: tuple[Header, ...] = (
    (b":method", b"GET"),
    (b":method", b"\xff"),
    (b":scheme", b""),
    (b":authority", b"\0"),
    (b"te", b"gzip"),
    (b"content-type", b"text/html"),
    (b"content-type", b"application/grpc+json"),
    (b"content-type", b"application/grpc-web"),
    (b"content-type", b""),
    (b"content-type", b"\xff" * 40),
    (b"grpc-timeout", b"0n"),
    (b"grpc-timeout", b"-1S"),
    (b"grpc-timeout", b"99999999999999999999H"),
    (b"grpc-timeout", b"x"),
    (b"grpc-encoding", b"gzip"),
    (b"grpc-encoding", b"rot13"),
    (b"grpc-accept-encoding", b"\xff\xff"),
    (b"authorization", b"Basic \xff\xfe\0"),
    (b"authorization", b"\r\nx: y"),
    (b"x-bin", b"!!! not base64 !!!"),
    (b"x-bin", b"A"),
    (b"X-Upper", b"case"),
    (b"", b"no name"),
    (b"x y", b"a name with a space"),
    (b"connection", b"close"),
    (b"content-length", b"3"),
    (b":unknown", b"pseudo"),
    (b"grpc-previous-rpc-attempts", b"x"),
    (b"x", b"y" * 17_000),
)
_BODIES = (
    b"",
    b"\0",
    b"\0\0\0\0",
    message()[:-1] + b"\x05",  # says five bytes, has none
    b"\0\xff\xff\xff\xff",  # says 4 GiB
    b"\0\x02\0\0\x01",  # says more than the server takes
    b"\x01" + message(b"\x0a\x04mail")[1:],  # says that it is compressed
    b"\x07" + message()[1:],
    message() * 2,
    message() * 300,
    message(b"\xff\xff"),
)
_GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # a handshake of TLS
    b"\x00\x00\x00\x08\x04\xd2\x16\x2f",  # a client of Postgres that asks for TLS
    b"PRI * HTTP/1.0\r\n\r\n",
    PREFACE[:10],
    PREFACE,
    PREFACE * 2,
    b"\0" * 2000,
    opening() + b"\xff" * 100,
)


@st.composite
def _frames(draw: DrawFn) -> bytes:
    """A few frames of any kind, on any stream, with any body."""
    data = bytearray(opening())
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.integers(0, 11))
        flags = draw(st.sampled_from((0, END_STREAM, END_HEADERS, 5, 8, 0x20, 0xFF)))
        stream = draw(st.sampled_from((0, 1, 3, 2, 0x7FFFFFFF, 0xFFFFFFFF)))
        data += frame(kind, flags, stream, draw(st.one_of(st.binary(max_size=40), _FRAME_BODIES)))
    return bytes(data)


_FRAME_BODIES = st.sampled_from(
    (
        bytes(4),
        bytes(8),
        b"\x7f\xff\xff\xff",
        b"\0\x04\xff\xff\xff\xff",  # a window that is too large
        b"\0\x05\0\0\0\0",  # frames of no bytes
        b"\0\x01\xff\xff\xff\xff",  # a table of headers that is too large
        b"\0\x03\0\0\0\0",  # no calls at all
        header_block(usual_headers(_PATHS[0])),
        b"\x80",  # index 0
        b"\xff\xff\xff\xff\xff\x0f",  # an index that does not exist
        b"\0\x7f\xff\xff\xff\x7f",  # a name that is longer than the block
        b"\x3f\xe1\xff\x03" * 30,
        bytes(16_384),
        bytes(20_000),  # past the size of a frame
    )
)


@st.composite
def _broken_calls(draw: DrawFn) -> bytes:
    """A call on a connection that is in order, with something wrong about its path, headers or body."""
    path = draw(st.one_of(st.sampled_from(_PATHS), st.sampled_from(_ODD_PATHS)))
    headers = usual_headers(path)
    for name, value in draw(st.lists(st.sampled_from(_ODD_HEADERS), max_size=2)):
        kept = [header for header in headers if header[0] != name or draw(st.booleans())]
        headers = [*kept, (name, value)]
    if draw(st.booleans()):
        headers = headers[::-1]
    return opening() + call_of(1, path, draw(st.sampled_from(_BODIES)), headers)


@st.composite
def _unfinished(draw: DrawFn) -> bytes:
    """A connection, a call or a message that stops in the middle."""
    path = draw(st.sampled_from(_PATHS))
    block = header_block(usual_headers(path))
    whole = opening() + frame(HEADERS, 0, 1, block[:20]) if draw(st.booleans()) else b""
    whole = whole or opening() + frame(HEADERS, END_HEADERS, 1, block) + frame(
        DATA, 0, 1, message(bytes(50))[:30]
    )
    return whole[: draw(st.integers(0, len(whole)))]


_FLOODS = (
    opening() + frame(SETTINGS, 0, 0) * 500,
    opening() + frame(6, 0, 0, bytes(8)) * 500,  # pings
    opening() + frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x01") * 1000,
    opening()
    + b"".join(  # calls that are taken back at once
        frame(HEADERS, END_HEADERS, stream, header_block(usual_headers(_PATHS[0])))
        + frame(3, 0, stream, b"\0\0\0\x08")
        for stream in range(1, 401, 2)
    ),
    opening() + frame(HEADERS, 0, 1, b"") + frame(9, 0, 1, b"") * 2000,  # headers that never end
)


def wires() -> SearchStrategy[Wire]:
    """Connections of all these kinds. Of those that stop in the middle some are kept open."""
    return st.one_of(
        st.sampled_from(_GARBAGE).map(Wire),
        st.binary(max_size=200).map(Wire),
        _frames().map(Wire),
        _broken_calls().map(lambda data: Wire(data, stays=True)),
        _broken_calls().map(lambda data: Wire(data, stays=True)),
        st.builds(Wire, _unfinished(), st.booleans()),
        st.sampled_from(_FLOODS).map(Wire),
    )
