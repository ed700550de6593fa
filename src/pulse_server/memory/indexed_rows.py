"""The rows of jobs in memory, with the indexes that submits and claims need."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import Any

from pulse_server.domain.jobs import Job
from pulse_server.domain.status import WAITING

Entry = tuple[Any, str]
"""The rank of a row in its group, and its id."""


class Index:
    """Rows in groups, each in the order of a rank. A row without a group is left out."""

    def __init__(self, group: Callable[[Job], Hashable | None], rank: Callable[[Job], Any]) -> None:
        self._group = group
        self._rank = rank
        self.groups: dict[Hashable, list[Entry]] = {}

    def __getitem__(self, group: Hashable) -> Sequence[Entry]:
        """The entries of a group, in order. Empty for an unknown group."""
        return self.groups.get(group, ())

    def move(self, before: Job | None, after: Job | None) -> None:
        """A row has changed, was added or was removed."""
        old, new = self._place(before), self._place(after)
        if old == new:
            return
        if old is not None:
            group, entry = old
            entries = self.groups[group]
            del entries[bisect_left(entries, entry)]
            if not entries:
                del self.groups[group]
        if new is not None:
            group, entry = new
            insort(self.groups.setdefault(group, []), entry)

    def _place(self, job: Job | None) -> tuple[Hashable, Entry] | None:
        if job is None or (group := self._group(job)) is None:
            return None
        return group, (self._rank(job), job.id)


class JobRows(dict[str, Job]):
    """The rows by id. They are changed item by item, which keeps the indexes up to date.

    `ready`: by topic, in the order of claims. `waiting`: by the time when they are due. `unstarted`: by the
    time until which they have to start. `keyed`: by topic and idempotency key. `unique`: unfinished jobs by
    topic, unique key and scope.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ready = Index(lambda job: job.topic if job.ready else None, _claim_rank)
        self.waiting = Index(_of_waiting, lambda job: job.next_run_at)
        self.unstarted = Index(_of_unstarted, lambda job: job.start_by)
        self.keyed = Index(_of_key, lambda job: job.submitted_at)
        self.unique = Index(_of_unique, lambda job: job.submitted_at)
        self._indexes = (self.ready, self.waiting, self.unstarted, self.keyed, self.unique)

    def __setitem__(self, job_id: str, job: Job) -> None:
        before = self.get(job_id)
        super().__setitem__(job_id, job)
        for index in self._indexes:
            index.move(before, job)

    def __delitem__(self, job_id: str) -> None:
        before = self[job_id]
        super().__delitem__(job_id)
        for index in self._indexes:
            index.move(before, None)


def _claim_rank(job: Job) -> tuple[int, datetime]:
    return -job.priority, job.submitted_at


def _of_waiting(job: Job) -> bool | None:
    return True if job.status in WAITING and not job.ready else None


def _of_unstarted(job: Job) -> bool | None:
    return True if job.status in WAITING and job.start_by is not None and job.attempts == 0 else None


def _of_key(job: Job) -> tuple[str, str] | None:
    return None if job.idempotency_key is None else (job.topic, job.idempotency_key)


def _of_unique(job: Job) -> tuple[str, str, str | None] | None:
    if job.unique_key is None or job.finished_at is not None:
        return None
    return job.topic, job.unique_key, job.unique_scope
