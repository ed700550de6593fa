"""The jobs of a workflow as a tree: a job is below its last parent, and equal jobs share a line.

Pure: nothing of the terminal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from string import digits
from typing import Generic, Protocol, TypeVar

from pulse_text.workflows import LinkedJob, equality_keys

_LEVELS_WIDTH = 30
"""Characters of the lines at the left of a name. A chain of a hundred jobs would leave no space for names."""
_AFTER_NAMED = 3
_SEPARATORS = "-_/.:# "


class Node(LinkedJob, Protocol):
    """A job, as far as the tree depends on it."""

    @property
    def name(self) -> str: ...


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

    `fold_from` equal jobs or more share a line; None: each job has its own.
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
    """Return the groups of equal jobs, in the order of their first jobs."""
    groups: dict[Hashable, list[J]] = {}
    for job, kind in zip(jobs, equality_keys(jobs), strict=True):
        groups.setdefault(kind, []).append(job)
    lines = [
        line
        for group in groups.values()
        for line in ([tuple(group)] if len(group) >= fold_from else [(job,) for job in group])
    ]
    return sorted(lines, key=lambda line: line[0].number)
