"""Which jobs of a workflow are equal, so that a line or a box can stand for all of them.

Equal jobs have the same topic and condition, and so have the jobs before and after them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol


class Job(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def when(self) -> str: ...
    @property
    def parents(self) -> Sequence[int]: ...


def kinds(jobs: Sequence[Job]) -> list[Hashable]:
    """Return a key for each job, the same one for equal jobs. Parents that are not in `jobs` do not count.

    Equal jobs have the same distance to the start: groups of them have no cycle either.
    """
    known = {job.number: job for job in jobs}
    above = {job.number: [number for number in job.parents if number in known] for job in jobs}
    under: dict[int, list[int]] = {number: [] for number in known}
    for number, parents in above.items():
        for parent in parents:
            under[parent].append(number)
    order = _parents_first(above, under)
    upward = _signatures(known, order, above)
    downward = _signatures(known, order[::-1], under)
    return [(upward[job.number], downward[job.number]) for job in jobs]


def _parents_first(above: Mapping[int, Sequence[int]], under: Mapping[int, Sequence[int]]) -> list[int]:
    left = {number: len(parents) for number, parents in above.items()}
    order = [number for number, count in left.items() if count == 0]
    for number in order:  # grows
        for child in under[number]:
            left[child] -= 1
            if left[child] == 0:
                order.append(child)
    return order


def _signatures(
    known: Mapping[int, Job], order: Sequence[int], next_to: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Return a number for each job. Jobs with equal neighbors, and so on to the end, share a number."""
    numbers: dict[object, int] = {}
    found: dict[int, int] = {}
    for number in order:
        job = known[number]
        shape = (job.topic, job.when, tuple(sorted(found[near] for near in next_to[number])))
        found[number] = numbers.setdefault(shape, len(numbers))
    return found
