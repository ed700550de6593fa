"""Numbers, bytes, moments and spans for the fields of requests."""

from __future__ import annotations

import math

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_INT32 = (0, 1, -1, 2, 99, 100, 101, 500, 501, 1000, 1001, 10_000, 10_001, 100_001, 2**31 - 1, -(2**31))
_INT64 = (*_INT32, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
_UINT64 = (*(number for number in _INT64 if number >= 0), 2**64 - 1)
_FLOATS = (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1.7e308)

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"

_SMALL = st.sampled_from((1, 2, 3, 10, 0))
_WHOLE: dict[int, tuple[int, ...]] = {
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_SINT32: _INT32,
    FieldDescriptor.TYPE_SFIXED32: _INT32,
    FieldDescriptor.TYPE_UINT32: tuple(number for number in _INT32 if number >= 0),
    FieldDescriptor.TYPE_FIXED32: tuple(number for number in _INT32 if number >= 0),
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_SINT64: _INT64,
    FieldDescriptor.TYPE_SFIXED64: _INT64,
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_FIXED64: _UINT64,
}
_MEBIBYTE = 1024 * 1024

# Far beyond the range of a calendar, a 64-bit clock or a rule of the server; and the bounds of those ranges.
_SECONDS = (
    *(0, 1, -1, 4_102_444_800, 7_258_118_400, 7_258_118_401, 253_402_300_799, 253_402_300_800),
    *(-62_135_596_800, -62_135_596_801, 2**62, 2**63 - 1, -(2**63), 315_360_000, 315_360_001),
    *(315_576_000_000, 315_576_000_001, -315_576_000_001),
)
_NANOS = (0, 1, -1, 999, 500_000_000, 999_999_999, 1_000_000_000, 2**31 - 1, -(2**31))
# Moments around now, and later ones; plausible spans.
_MOMENTS = (1_600_000_000, 1_767_225_600, 1_800_000_000, 1_900_000_000)
_SPANS = (0, 1, 2, 60, 3600, 86_400)


def scalars(field: FieldDescriptor, *, odd: bool) -> SearchStrategy[object]:
    """Values for a field that is neither text nor a message."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _ODD_BYTES if odd else _BYTES
    if field.enum_type is not None:
        return _enumeration(field.enum_type, odd=odd)
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return st.sampled_from(_FLOATS) if odd else st.sampled_from(_FLOATS[:3])
    if odd:
        return st.sampled_from(_WHOLE[field.type])
    # The first run is the one that is most often under way.
    return st.sampled_from((1, 1, 1, 2)) if field.name in ("attempt", "run") else _SMALL


def seconds_and_nanos(type_name: str, *, odd: bool) -> SearchStrategy[tuple[int, int]]:
    """What a Timestamp or a Duration is made of."""
    if odd:
        return st.tuples(st.sampled_from(_SECONDS), st.sampled_from(_NANOS))
    return st.tuples(st.sampled_from(_MOMENTS if type_name == TIMESTAMP else _SPANS), st.just(0))


_BYTES: SearchStrategy[object] = st.sampled_from((b"", b"{}", b'{"n": 1}', b"\0\xff"))
_ODD_BYTES: SearchStrategy[object] = st.one_of(
    st.binary(max_size=64), st.sampled_from((b"x" * _MEBIBYTE, b"\0" * (_MEBIBYTE + 1), b"y" * 70_000))
)


def _enumeration(descriptor: EnumDescriptor, *, odd: bool) -> SearchStrategy[object]:
    known = tuple(value.number for value in descriptor.values)
    return st.sampled_from((*known, max(known) + 1, -1, 2**31 - 1)) if odd else st.sampled_from(known)
