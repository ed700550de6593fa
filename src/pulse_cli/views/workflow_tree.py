"""The jobs of a workflow as a tree: a job is below its last parent, and equal jobs share a line.

Pure: nothing of the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import digits
from typing import Generic, Protocol, TypeVar

_LEVELS_WIDTH = 30
"""Characters of the lines at the left of a name. A chain of a hundred jobs would leave no space for names."""
_AFTER_NAMED = 3
_SEPARATORS = "-_/.:# "


class Node(Protocol):
    """A job, as far as the tree depends on it."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def when(self) -> str: ...
    @property
    def parents(self) -> Sequence[int]: ...


J = TypeVar("J", bound=Node)


@dataclass(frozen=True, slots=True)
class Branch(Generic[J]):
    """One line of the tree: a job, or several equal jobs."""

    jobs: tuple[J, ...]
    lead: str
    """The lines of the tree on the left of its name."""
    below: str
    """The same on the left of further lines about these jobs."""
    after: str
    """The labels of its parents. Empty if it has only one: the tree shows that one."""

    @property
    def label(self) -> str:
        """`load`, or `page × 10,000`."""
        return _label(self.jobs)


def tree(jobs: Sequence[J], fold_from: int | None) -> list[Branch[J]]:
    """Return the lines of the tree, parents before children.

    `fold_from` equal jobs or more share a line; None: each job has its own. Equal jobs have the same topic
    and condition, and so have the jobs before and after them.
    """
    groups = [(job,) for job in jobs] if fold_from is None else _folded(jobs, fold_from)
    group_of = {job.number: at for at, group in enumerate(groups) for job in group}
    parents = [
        sorted({group_of[number] for job in group for number in job.parents if number in group_of})
        for group in groups
    ]
    children: list[list[int]] = [[] for _ in groups]
    for child, above in enumerate(parents):
        for parent in above:
            children[parent].append(child)
    return list(_walk(groups, parents, children))


def _walk(
    groups: Sequence[tuple[J, ...]], parents: Sequence[list[int]], children: Sequence[list[int]]
) -> Iterator[Branch[J]]:
    left = [len(above) for above in parents]
    roots = [at for at, count in enumerate(left) if count == 0]
    # A stack, because a chain may be longer than Python's limit of recursion.
    open_lines = [(root, "", "") for root in reversed(roots)]
    while open_lines:
        at, lead, below = open_lines.pop()
        placed = []
        for child in children[at]:
            left[child] -= 1
            if left[child] == 0:
                placed.append(child)
        above = parents[at]
        after = _after([_label(groups[parent]) for parent in above]) if len(above) > 1 else ""
        yield Branch(groups[at], _cut(lead), _cut(below), after)
        for child in reversed(placed):
            is_last = child == placed[-1]
            open_lines.append(
                (child, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  "))
            )


def _cut(lead: str) -> str:
    return lead if len(lead) <= _LEVELS_WIDTH else "… " + lead[2 - _LEVELS_WIDTH :]


def _after(labels: Sequence[str]) -> str:
    more = len(labels) - _AFTER_NAMED
    return ", ".join(labels[:_AFTER_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _label(jobs: Sequence[Node]) -> str:
    if len(jobs) == 1:
        return jobs[0].name
    shared = _shared_start([job.name for job in jobs])
    # page-10 to page-19 share the start of a number, load1-a and load1-b do not.
    stem = shared if shared[-1:] in _SEPARATORS else shared.rstrip(digits)
    return f"{stem.rstrip(_SEPARATORS) or jobs[0].topic} × {len(jobs):,}"


def _shared_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)  # the two that differ first
    differing = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differing, len(first))]


def _folded(jobs: Sequence[J], fold_from: int) -> list[tuple[J, ...]]:
    """Return the groups of equal jobs, in the order of their first jobs.

    All jobs of a group have the same distance to the start: groups have no cycle either.
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
    groups: dict[tuple[int, int], list[J]] = {}
    for job in jobs:
        groups.setdefault((upward[job.number], downward[job.number]), []).append(job)
    lines = [
        line
        for group in groups.values()
        for line in ([tuple(group)] if len(group) >= fold_from else [(job,) for job in group])
    ]
    return sorted(lines, key=lambda line: line[0].number)


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
    known: Mapping[int, Node], order: Sequence[int], next_to: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Return a number for each job. Jobs with equal neighbors, and so on to the end, share a number."""
    numbers: dict[object, int] = {}
    found: dict[int, int] = {}
    for number in order:
        job = known[number]
        shape = (job.topic, job.when, tuple(sorted(found[near] for near in next_to[number])))
        found[number] = numbers.setdefault(shape, len(numbers))
    return found
