"""Inputs by their kinds: structured, mangled, misplaced, and bare connections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from faults.fuzzing.acquaintances import Acquaintances, Claim
from faults.fuzzing.callers import GOOD, odd_metadata, wrong_credentials, wrong_names
from faults.fuzzing.contract import RPCS, Rpc
from faults.fuzzing.inputs import Call, Input, Metadata
from faults.fuzzing.texts import Texts
from faults.fuzzing.wires import wires
from pulse_server.base import tuning

# ---------------------------------------------------------------- numbers
# Numbers, bytes, moments and spans for the fields of requests.


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


# ---------------------------------------------------------------- making


# ---------------------------------------------------------------- messages
# Requests by their descriptors: any field of any type, mostly as the server may take it, some of it not.


_DEEPEST = 5
# Beyond the server's bounds for lists, which are 500, 1,000, 10,000 and 20,000.
_MANY = (0, 65, 501, 1001, 10_001, 20_001)
_MOST_ENTRIES = 1001  # of a map
# What a list may weigh. Requests that are too large as a whole are another kind (mangling.py).
_LIST_BYTES = 512 * 1024
# Of twenty: for fields with presence, and for the others, most of which are required.
_MAY_BE_LEFT_OUT, _LEFT_OUT = 6, 1
# Many more of them in some messages: a filter of all that can be asked for matches nothing.
_SELDOM_SPARSE, _OFTEN_SPARSE = st.sampled_from((0, 0, 0, 0, 0, 10)), st.sampled_from((0, 10, 12))
_ALL_OPTIONAL = re.compile("Filter|List|Watch|Update")
_ODD_FROM = 18  # in a request that may be odd
_CLAIMED_FROM = 10


class Requests:
    """Strategies for messages. One per type, made when it is first asked for."""

    def __init__(self, known: Acquaintances) -> None:
        self._known = known
        self._texts = Texts(known)
        self._plans: dict[str, _Plan] = {}

    def of(self, descriptor: Descriptor) -> SearchStrategy[Message]:
        """Messages of this type."""
        return _message(self, descriptor)

    def fill(self, draw: DrawFn, message: Any, *, may_be_odd: bool, depth: int = _DEEPEST) -> None:
        plan = self._plan(message.DESCRIPTOR)
        sparse = draw(plan.sparse)
        for alternatives in plan.choices:
            step = alternatives[0] if len(alternatives) == 1 else draw(st.sampled_from(alternatives))
            chance = draw(_TWENTY)
            if chance < step.left_out + sparse:
                continue
            step.fill(draw, message, may_be_odd and chance >= _ODD_FROM, depth)

    def claimed(self, draw: DrawFn, message: Message) -> None:
        """Fill in a claim that existed, with all fields of the fence."""
        claims = self._known.claims
        _set_claim(message, claims[draw(st.integers(0, 255)) % len(claims)])

    def _plan(self, descriptor: Descriptor) -> _Plan:
        if descriptor.full_name not in self._plans:
            self._plans[descriptor.full_name] = _Plan(self, descriptor, self._texts)
        return self._plans[descriptor.full_name]


_TWENTY = st.integers(0, 19)


@st.composite
def _message(draw: DrawFn, requests: Requests, descriptor: Descriptor) -> Message:
    message = GetMessageClass(descriptor)()
    may_be_odd = draw(st.booleans())
    requests.fill(draw, message, may_be_odd=may_be_odd)
    if draw(_TWENTY) >= _CLAIMED_FROM:
        requests.claimed(draw, message)
    return message


class _Plan:
    """The fields of one type, those of a oneof together."""

    def __init__(self, requests: Requests, descriptor: Descriptor, texts: Texts) -> None:
        steps: dict[str, list[_Step]] = {}
        for field in descriptor.fields:
            group = field.containing_oneof.name if field.containing_oneof else field.name
            steps.setdefault(group, []).append(_Step(requests, field, texts))
        self.choices = list(steps.values())
        self.sparse = _OFTEN_SPARSE if _ALL_OPTIONAL.search(descriptor.name) else _SELDOM_SPARSE


class _Step:
    """How one field is filled."""

    def __init__(self, requests: Requests, field: FieldDescriptor, texts: Texts) -> None:
        self._requests = requests
        self._field = field
        self._texts = texts
        self.left_out = _MAY_BE_LEFT_OUT if field.has_presence or field.is_repeated else _LEFT_OUT

    def fill(self, draw: DrawFn, message: Message, odd: bool, depth: int) -> None:
        field = self._field
        if field.is_repeated:
            self._fill_repeated(draw, getattr(message, field.name), odd, depth)
        elif field.message_type is None:
            setattr(message, field.name, draw(self._values[odd]))
        else:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self._fill_message(draw, inner, odd, depth)

    def _fill_message(self, draw: DrawFn, inner: Any, odd: bool, depth: int) -> None:
        name = inner.DESCRIPTOR.full_name
        if name in (TIMESTAMP, DURATION):
            inner.seconds, inner.nanos = draw(seconds_and_nanos(name, odd=odd))
        elif depth:
            self._requests.fill(draw, inner, may_be_odd=odd or draw(st.booleans()), depth=depth - 1)

    def _fill_repeated(self, draw: DrawFn, values: Any, odd: bool, depth: int) -> None:
        field = self._field
        count = draw(st.sampled_from(_MANY)) if odd else draw(st.integers(1, 3))
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._fill_map(draw, values, count, odd, depth)
        elif field.message_type is None:
            texts = [draw(self._values[odd and number == 0]) for number in range(min(count, 3))]
            values.extend(_repeated(texts, count, sum(len(str(text)) for text in texts)))
        else:
            some = []
            for _ in range(min(count, 2)):
                inner = GetMessageClass(field.message_type)()
                self._fill_message(draw, inner, odd, depth)
                some.append(inner)
            values.extend(_repeated(some, count, sum(inner.ByteSize() for inner in some)))

    def _fill_map(self, draw: DrawFn, values: Any, count: int, odd: bool, depth: int) -> None:
        """That many entries, the same value under keys that follow each other."""
        key, value = (_Step(self._requests, part, self._texts) for part in self._field.message_type.fields)  # type: ignore[union-attr]
        first = draw(key._values[odd])
        for number in range(min(count, _MOST_ENTRIES, _LIST_BYTES // max(1, len(str(first))))):
            name = f"{first}{number or ''}" if isinstance(first, str) else first + number
            if value._field.message_type is not None:
                value._fill_message(draw, values[name], odd, depth)
            else:
                values[name] = draw(value._values[odd]) if number == 0 else values[first]

    @cached_property
    def _values(self) -> tuple[SearchStrategy[Any], SearchStrategy[Any]]:
        """What is plausible, and what is odd."""
        if self._field.type == FieldDescriptor.TYPE_STRING:
            return self._texts.plausible(self._field.name), self._texts.odd(self._field.name)
        return scalars(self._field, odd=False), scalars(self._field, odd=True)


def _repeated(some: list[Any], count: int, weight: int) -> list[Any]:
    """These again and again: that many, or as many as a list may weigh."""
    if not some:
        return []
    count = min(count, _LIST_BYTES * len(some) // max(1, weight) + 1)
    return (some * (count // len(some) + 1))[:count]


def _set_claim(message: Any, claim: Claim) -> None:
    """Wherever the message names a job with its attempt, or a worker, name those of the claim."""
    names = message.DESCRIPTOR.fields_by_name
    if "worker_id" in names:
        message.worker_id = claim.worker_id
    if "job_id" in names and "attempt" in names:
        message.job_id, message.attempt, message.run = claim.job_id, claim.attempt, claim.run
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.file.package == "pulse.v1":
            if not field.is_repeated:
                _set_claim(value, claim)
            elif not field.message_type.GetOptions().map_entry and len(value):
                _set_claim(value[0], claim)


# ---------------------------------------------------------------- making


# ---------------------------------------------------------------- mangling
# Bytes that are no message, or not the one that was meant.


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


# ---------------------------------------------------------------- making


# Now and then a caller leaves at once, or sends a unary call no message, or two.
_SELDOM = st.sampled_from((False,) * 5 + (True,))
_HANGS_UP = st.sampled_from((False,) * 23 + (True,))
_ONE = st.sampled_from((1,) * 18 + (0, 2))
_MOST_ON_A_STREAM = 5


class Making:
    """Makes inputs for a server; a guarded one has users."""

    def __init__(self, known: Acquaintances, *, guarded: bool) -> None:
        self._requests = Requests(known)
        if guarded:
            good: SearchStrategy[Metadata] = st.sampled_from(tuple(GOOD))
            self._metadata = st.one_of(wrong_credentials, good)
        else:
            self._metadata = st.sampled_from((False,) * 5 + (True,)).flatmap(
                lambda odd: odd_metadata if odd else st.just(())
            )
        self.structured = cache(self._structured)
        self.mangled = cache(self._mangled)

    def about(self, rpc: Rpc) -> SearchStrategy[Input]:
        """Calls of this RPC, with a few others in between."""
        return st.one_of(
            self.structured(rpc),
            self.structured(rpc),
            self.structured(rpc),
            self.mangled(rpc),
            st.sampled_from(RPCS).flatmap(self.structured),
        )

    def misplaced(self) -> SearchStrategy[Input]:
        """Calls of methods that do not exist, and messages of one method sent to another."""
        anything = st.sampled_from(RPCS).flatmap(self._encoded)
        path = st.one_of(wrong_names, st.sampled_from([rpc.path for rpc in RPCS]))
        return self._calls(path, st.lists(anything, min_size=1, max_size=2), "misplaced")

    def wires(self) -> SearchStrategy[Input]:
        return wires()

    def _structured(self, rpc: Rpc) -> SearchStrategy[Input]:
        return self._calls(st.just(rpc.path), _several(rpc, self._encoded(rpc)), "structured")

    def _mangled(self, rpc: Rpc) -> SearchStrategy[Input]:
        messages = _several(rpc, mangled(self._encoded(rpc), rpc.method.input_type))
        return self._calls(st.just(rpc.path), messages, "mangled")

    def _encoded(self, rpc: Rpc) -> SearchStrategy[bytes]:
        return self._requests.of(rpc.method.input_type).map(lambda message: message.SerializeToString())

    def _calls(
        self, path: SearchStrategy[str], messages: SearchStrategy[list[bytes]], kind: str
    ) -> SearchStrategy[Input]:
        return st.builds(Call, path, messages.map(tuple), self._metadata, _HANGS_UP, st.just(kind))


def oversize() -> list[Input]:
    """Messages larger than the server accepts. Made rarely: each has 4 MiB."""
    data = bytes(tuning.MAX_MESSAGE_BYTES + 1)
    by_name = {rpc.name: rpc for rpc in RPCS}
    return [
        Call(by_name[name].path, (data,), kind="oversize") for name in ("SubmitJob", "StreamSubmits", "Check")
    ]


def _several(rpc: Rpc, encoded: SearchStrategy[bytes]) -> SearchStrategy[list[bytes]]:
    """As many messages as the RPC takes; now and then another number."""
    if rpc.takes_stream:
        return st.lists(encoded, max_size=_MOST_ON_A_STREAM)
    return _ONE.flatmap(lambda count: st.lists(encoded, min_size=count, max_size=count))
