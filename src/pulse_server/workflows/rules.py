"""Workflows: jobs that wait for jobs. A submit is checked here, before anything is stored. ADR-0077"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from pulse_server.base.errors import InvalidArgument
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.rules import Cancellation, Level

_NAMES_SHOWN = 5


class When(StrEnum):
    """The condition of a job, once it has parents."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ALWAYS = "always"


class NewNode(NamedTuple):
    """A job to store in a workflow."""

    name: str
    job: NewJob
    after: Sequence[str] = ()
    when: When = When.SUCCEEDED
    before: Sequence[str] = ()
    """Only of an added job: waiting jobs that then wait for this one too."""


class WorkflowBounds(NamedTuple):
    jobs: int
    edges: int


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow as stored: how many of its jobs ended, and how."""

    id: str
    name: str
    status: str
    jobs: int
    unfinished: int
    succeeded: int
    failed: int
    canceled: int
    skipped: int
    submitted_at: datetime
    finished_at: datetime | None
    canceled_at: datetime | None
    schedule_id: str | None


@dataclass(frozen=True, slots=True)
class Node:
    """A job of a workflow as stored. The fields from `status` on are None once the job is deleted."""

    number: int
    job_id: str
    name: str
    topic: str
    condition: str
    dropped: str | None
    outcome: str | None
    unended: int
    status: str | None
    held: bool | None
    attempts: int | None
    started_at: datetime | None
    finished_at: datetime | None
    next_run_at: datetime | None
    waits_for: str | None
    """The signals that it waits for; empty: its handler sleeps. None: neither."""
    last_error: str | None
    result: bytes | None
    parents: Sequence[int]

    @property
    def state(self) -> str:
        if self.dropped is not None and self.outcome is not None:
            return self.dropped
        return "waiting" if self.held else "ready"


class CanceledWorkflow(NamedTuple):
    """The answer to a cancel. Nothing was changed if every job had ended."""

    is_canceled: bool
    jobs: Sequence[Cancellation]
    """Those that did not wait for other jobs, canceled with the workflow."""
    left: Sequence[str]
    """Others of them, which another session had locked, or beyond the bound of one transaction."""


class Stored(NamedTuple):
    """The answer to a submit. `is_same`: of a workflow that existed, whether it has the same content."""

    is_new: bool
    is_same: bool
    job_ids: Sequence[str]


class Addition(NamedTuple):
    """The answer to an addition. Nothing was added if there is a problem; `names` are its cause."""

    problem: str | None
    names: Sequence[str]
    workflow_id: str | None
    job_ids: Sequence[str]
    added: int


class WorkflowsLocked(Exception):
    """Another session of the database has locked rows that a settle needs. Nothing was changed."""


class Settled(NamedTuple):
    """What one settle has done."""

    levels: Sequence[Level]
    """Where jobs became ready."""
    ready: int
    dropped: Mapping[str, Sequence[str]]
    """Canceled jobs by topic."""
    finished: Sequence[str]
    """Workflows that have ended."""
    is_more: bool
    """Whether notices are left."""

    @property
    def did_something(self) -> bool:
        return bool(self.ready or self.dropped or self.finished)


def in_order(nodes: Sequence[NewNode]) -> list[NewNode]:
    """The nodes, parents first; as given, if they are in such an order.

    Raises InvalidArgument for names that are taken, missing or in a cycle.
    """
    by_name = named(nodes)
    for node in nodes:
        if missing := [name for name in node.after if name not in by_name]:
            raise InvalidArgument(
                "after", f"of {node.name!r} names {shown(missing)}, which this workflow lacks."
            )
    places = {node.name: place for place, node in enumerate(nodes)}
    if all(places[parent] < place for place, node in enumerate(nodes) for parent in node.after):
        return list(nodes)
    waits = {node.name: len(set(node.after)) for node in nodes}
    children: dict[str, list[str]] = {}
    for node in nodes:
        for parent in set(node.after):
            children.setdefault(parent, []).append(node.name)
    ready = [node.name for node in nodes if not waits[node.name]]
    for name in ready:  # grows while it is read
        for child in children.get(name, ()):
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    if len(ready) < len(nodes):
        raise InvalidArgument(
            "after", f"has a cycle: {shown(_cycle(by_name, set(ready)))} wait for each other."
        )
    return [by_name[name] for name in ready]


def named(nodes: Sequence[NewNode]) -> dict[str, NewNode]:
    """The nodes by name. InvalidArgument if two have the same name."""
    by_name: dict[str, NewNode] = {}
    for node in nodes:
        if node.name in by_name:
            raise InvalidArgument("jobs", f"has the name {node.name!r} twice: each name is for one job.")
        by_name[node.name] = node
    return by_name


def check_keys(nodes: Sequence[NewNode]) -> None:
    """Raises InvalidArgument if two jobs have one unique key."""
    keys: dict[tuple[str, str], str] = {}
    for node in nodes:
        if node.job.unique is None:
            continue
        other = keys.setdefault((node.job.topic, node.job.unique.key), node.name)
        if other != node.name:
            raise InvalidArgument(
                "unique.key", f"{node.job.unique.key!r} is that of both {other!r} and {node.name!r}."
            )


def check_addition(nodes: Sequence[NewNode]) -> None:
    """Raises InvalidArgument if two jobs have one name, or one waits for a later one or for itself."""
    places = {name: place for place, name in enumerate(named(nodes))}
    for place, node in enumerate(nodes):
        if late := [name for name in node.after if places.get(name, -1) >= place]:
            raise InvalidArgument(
                "after", f"of {node.name!r} names {shown(late)}, which is not before it in this call."
            )


def _cycle(by_name: Mapping[str, NewNode], ended: set[str]) -> list[str]:
    """The names of a cycle among the nodes that never become ready."""
    name = next(name for name in by_name if name not in ended)
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = next(parent for parent in by_name[name].after if parent not in ended)
    return path[path.index(name) :]


def shown(names: Sequence[str]) -> str:
    """Some of the names, for a sentence."""
    texts = [repr(name[:60]) for name in names[:_NAMES_SHOWN]]
    if len(names) > _NAMES_SHOWN:
        return f"{', '.join(texts)} and {len(names) - _NAMES_SHOWN} more"
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def check_edges(nodes: Sequence[NewNode], bounds: WorkflowBounds) -> None:
    edges = sum(len(node.after) + len(node.before) for node in nodes)
    if edges > bounds.edges:
        raise InvalidArgument(
            "after",
            f"has {edges} names in all; {bounds.edges} are allowed at the most. Let a job in between "
            "wait for many others, and let the rest wait for it.",
        )


def check_count_of_jobs(count: int, bounds: WorkflowBounds) -> None:
    if count > bounds.jobs:
        raise InvalidArgument(
            "jobs",
            f"of the workflow are more than {bounds.jobs}. Split it, or raise PULSE_MAX_WORKFLOW_JOBS "
            "of pulsed.",
        )
