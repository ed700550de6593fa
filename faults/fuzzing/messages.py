"""Requests by their descriptors: any field of any type, mostly as the server may take it, some of it not."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from faults.fuzzing.acquaintances import Acquaintances, Claim
from faults.fuzzing.numbers import DURATION, TIMESTAMP, scalars, seconds_and_nanos
from faults.fuzzing.texts import Texts

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
