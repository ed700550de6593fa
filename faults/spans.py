"""Stretches of time, by the database's clock in microseconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

SECOND = 1_000_000
LONG_AGO, FOR_EVER = -(1 << 62), 1 << 62


class Spans:
    """Stretches of time in their order. Those that overlap are joined."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        joined: list[tuple[int, int]] = []
        for begin, end in sorted(spans):
            if joined and begin <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((begin, end))
        self._spans = joined
        self._begins = [begin for begin, _ in joined]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._spans)

    def __or__(self, other: Spans) -> Spans:
        if not other._spans:
            return self
        return Spans([*self._spans, *other._spans])

    def clear_since(self, moment: int) -> int:
        """The end of the last span that had begun by then. It is after the moment if that is inside of it."""
        place = bisect_right(self._begins, moment)
        return self._spans[place - 1][1] if place else LONG_AGO

    def gaps(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The stretches between the two moments that no span covers."""
        for span_begin, span_end in self._spans[max(0, bisect_right(self._begins, begin) - 1) :]:
            if span_begin >= end:
                break
            if span_begin > begin:
                yield begin, span_begin
            begin = max(begin, span_end)
        if begin < end:
            yield begin, end


def where_full(changes: Iterable[tuple[int, int]], capacity: int) -> Spans:
    """Where the sum of the changes, each a moment and a step up or down, is at its capacity or above it."""
    full: list[tuple[int, int]] = []
    number, since = 0, LONG_AGO
    for moment, step in sorted(changes):
        before, number = number, number + step
        if before < capacity <= number:
            since = moment
        elif number < capacity <= before:
            full.append((since, moment))
    if number >= capacity:
        full.append((since, FOR_EVER))
    return Spans(full)
