"""Bytes that are no message, or not the one that was meant."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

_NOT_UTF8 = (b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80")
_NESTED = (3, 99, 101, 5_000)
# Well-formed pieces of no field that is known, and pieces that are not well-formed.
_STRANGE = (
    b"\xff" * 20,
    b"\x0c",  # the end of a group that did not begin
    b"\x0a\x7f",  # says 127 bytes, has none
    b"\x0a\xff\xff\xff\xff\x0f",  # says 4 GiB
    b"\x08" + b"\x80" * 12 + b"\x01",  # a number of more than 64 bits
    b"\xfa\xff\xff\xff\x0f\x02hi",  # the last field number there is
    b"\x02\x00",  # field number 0
    b"\x0e",  # a wire type that is not used
    b"\xf8\x7f\x01" * 200,
)


def mangled(encoded: SearchStrategy[bytes], descriptor: Descriptor) -> SearchStrategy[bytes]:
    """Messages of the type with something wrong about their bytes."""
    return st.one_of(
        st.binary(max_size=200),
        _changed(encoded),
        st.tuples(encoded, st.sampled_from(_STRANGE)).map(b"".join),
        st.sampled_from(_NESTED).map(_nested_groups),
        st.sampled_from(_NESTED).map(_nested_messages),
        *([st.sampled_from(tuple(_misspelled(descriptor)))] if descriptor.fields else []),
    )


@st.composite
def _changed(draw: DrawFn, encoded: SearchStrategy[bytes]) -> bytes:
    """Cut, flipped, doubled or with bytes in between: what a broken client or wire makes of a message."""
    data = bytearray(draw(encoded))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, min(len(data), 4096) - 1)))
        match draw(st.sampled_from(("cut", "flip", "insert", "double", "drop"))):
            case "cut":
                del data[place:]
            case "flip" if data:
                data[place] ^= 1 << draw(st.integers(0, 7))
            case "insert":
                data[place:place] = draw(st.binary(min_size=1, max_size=8))
            case "double":
                data += data[place : place + 4096]
            case _:
                del data[place : place + 1]
    return bytes(data)


def _nested_groups(depth: int) -> bytes:
    return b"\x0b" * depth + b"\x0c" * depth


def _nested_messages(depth: int) -> bytes:
    """The first field within the first field within …"""
    data = b""
    for _ in range(depth):
        data = delimited(1, data)
    return data


def _misspelled(descriptor: Descriptor, depth: int = 4) -> Iterator[bytes]:
    """Each string of the message, however deep, in bytes that are no UTF-8; each field of a wrong type."""
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in _NOT_UTF8:
                yield delimited(field.number, text)
        elif field.message_type is not None and depth:
            for inner in _misspelled(field.message_type, depth - 1):
                yield delimited(field.number, inner)
        yield varint(field.number << 3 | 5) + b"four"


def delimited(number: int, content: bytes) -> bytes:
    """A field of bytes, as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
