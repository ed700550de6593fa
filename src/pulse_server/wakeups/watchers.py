"""Watchers: clients that follow jobs through the transitions that any server commits.

Without watchers there is no cost. With one, the servers send their transitions over the wake-up line. A
transition that does not fit is dropped and counted: a watcher must never slow the queue down.
docs/figures.md#lists-counts-and-watchers

What servers send each other is a `Wakeup`. It may be lost: polling finds the same work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple, Protocol

from pulse_server.base.bounds import LEASE_EXPIRED, TIME_LIMIT_EXCEEDED
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.jobs.reports import StoredProgress
from pulse_server.jobs.rules import (
    LEGAL_TRANSITIONS,
    TERMINAL,
    Claim,
    ClaimedJob,
    Ended,
    Job,
    JobStatus,
    Level,
    Progress,
    Reaped,
)

TRANSITION_ERROR_CHARACTERS = 120


class Transition(NamedTuple):
    job_id: str
    topic: str
    status: JobStatus
    attempt: int
    worker_id: str | None
    error: str
    """Its first line, cut."""
    at: datetime
    progress: Progress | None = None
    """Set: the job runs as before, and its handler has reported this."""


def transition(
    job_id: str,
    topic: str,
    status: JobStatus,
    attempt: int | None = None,
    worker_id: str | None = None,
    error: str = "",
) -> Transition:
    """A transition that was committed just now."""
    if error:
        error = error.partition("\n")[0][:TRANSITION_ERROR_CHARACTERS]
    return Transition(job_id, topic, status, attempt or 0, worker_id, error, datetime.now(UTC))


def of_new(job_id: str, topic: str) -> Transition:
    return transition(job_id, topic, JobStatus.PENDING)


def of_start(job: ClaimedJob) -> Transition:
    return transition(job.id, job.topic, JobStatus.RUNNING, job.attempt, job.worker_id)


def of_claim(claim: Claim, topic: str, status: JobStatus, error: str = "") -> Transition:
    return transition(claim.job_id, topic, status, claim.attempt, claim.worker_id, error)


def of_wait(claim: Claim, ended: Ended, last_error: str) -> Transition:
    """A handler asked to wait. The error is set if the job may not wait any more."""
    error = last_error if ended.status is JobStatus.DEAD_LETTERED else ""
    return of_claim(claim, ended.topic, ended.status, error)


def of_reap(reaped: Reaped) -> Transition:
    error = TIME_LIMIT_EXCEEDED if reaped.timed_out else LEASE_EXPIRED
    return of_claim(reaped.claim, reaped.topic, reaped.status, error)


def of_progress(stored: StoredProgress) -> Transition:
    claim = stored.claim
    change = transition(claim.job_id, stored.topic, JobStatus.RUNNING, claim.attempt, claim.worker_id)
    return change._replace(progress=stored.progress)


def of_change(job: Job, reason: str = "") -> Transition:
    return transition(job.id, job.topic, job.status, job.attempts, error=reason)


def in_order(transitions: Iterable[Transition]) -> list[Transition]:
    """The same transitions, with the transitions of each job in the order of its life.

    Transitions of one server arrive in order. But a job may be submitted to one server, claimed by
    another and reported to a third. Where the order of arrival is impossible, attempts and statuses
    show the true order.
    """
    ordered = list(transitions)
    places: dict[str, list[int]] = {}
    for place, transition in enumerate(ordered):
        places.setdefault(transition.job_id, []).append(place)
    for own in places.values():
        life = [ordered[place] for place in own]
        if not _is_possible(life):
            for place, transition in zip(own, sorted(life, key=_step), strict=True):
                ordered[place] = transition
    return ordered


def _is_possible(life: Sequence[Transition]) -> bool:
    return all(
        _is_progress(earlier, later)
        or (
            later.status in LEGAL_TRANSITIONS[earlier.status]
            and later.attempt >= _next_attempt(earlier, later)
        )
        for earlier, later in pairwise(life)
    )


def _is_progress(earlier: Transition, later: Transition) -> bool:
    return (
        later.progress is not None
        and earlier.status is JobStatus.RUNNING
        and earlier.attempt == later.attempt
    )


def _next_attempt(earlier: Transition, later: Transition) -> int:
    # A released job repeats its attempt after RETRYING. A cancel then names the attempt before.
    is_claimed = earlier.status is JobStatus.PENDING and later.status is JobStatus.RUNNING
    was_given_back = earlier.status is JobStatus.RETRYING and later.status is JobStatus.CANCELED
    return earlier.attempt + is_claimed - was_given_back


def _step(transition: Transition) -> tuple[int, int]:
    """How far a job is in its life: its attempt, then the phase before, in or after the run."""
    match transition.status:
        case JobStatus.PENDING:
            step = 0 if transition.attempt == 0 else 3  # submitted, or redriven after that attempt
        case JobStatus.RUNNING:
            step = 1
        case _:
            step = 2
    return transition.attempt, step


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A message between servers."""

    topics: frozenset[str] | None = frozenset()
    """Topics with new ready jobs. None: look everywhere."""
    ended: tuple[Claim, ...] = ()
    """Claims that ended without a report of their worker."""
    lapsed: tuple[Claim, ...] = ()
    """Claims that ended because their leases expired."""
    claims_unknown: bool = False
    """Claims may have ended without a message: look up all held claims."""
    gate_changed: bool = False
    """Dispatch, a topic or a worker was paused or resumed."""
    settings_changed: bool = False
    """The settings of a topic were set or declared."""
    watching: bool = False
    """The sender has watchers: send it transitions."""
    awaiting: bool = False
    """The sender has clients that wait for jobs: send it transitions that finish one."""
    asking: bool = False
    """The sender has just started: remind it of watchers and of clients that wait for jobs."""
    transitions: tuple[Transition, ...] = ()
    missed: int = 0
    """Transitions that did not fit."""
    watching_progress: bool = False
    """The sender has watchers of progress: send it progress too."""
    progress: tuple[Transition, ...] = ()
    """Transitions with progress. Those over the size limit are dropped: newer ones follow."""
    levels: tuple[Level, ...] = ()
    """The known levels of the new jobs. A topic without a level: look at the whole topic."""


class WakeupLine(Protocol):
    """PostgresWakeupLine, or behind a transaction pooler NoWakeupLine."""

    def announce(self, wakeup: Wakeup) -> None:
        """Notify the other servers soon. Never waits, never fails."""
        ...

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        """Register a callback for each wake-up of another server."""
        ...


# Other servers send transitions for this long after the last reminder that a server has watchers.
WATCH_REMINDER = timedelta(seconds=5)
WATCH_INTEREST = timedelta(seconds=15)
# Transitions wait this long for earlier ones of other servers: the line between servers takes some 30 ms.
WATCH_GATHERING = timedelta(milliseconds=100)
# Unread transitions of a watcher. Together with the gathering this bounds the cost of a watcher: at
# most 10,000 transitions a second, more than a person can read, at some 8 µs each.
WATCHER_BACKLOG = 1000


class Watcher:
    """One watcher: its filter, and the transitions that it has not read yet."""

    def __init__(
        self, topics: frozenset[str], job_ids: frozenset[str], *, wants_progress: bool = False
    ) -> None:
        self._topics = topics
        self._job_ids = job_ids
        self.wants_progress = wants_progress
        self._unread: deque[Transition] = deque()
        self._missed = 0
        self._is_over = False
        self._something_new = asyncio.Event()

    def offer(self, transitions: Iterable[Transition], missed: int = 0) -> None:
        for transition in transitions:
            if self._wants(transition):
                if len(self._unread) >= WATCHER_BACKLOG:
                    self._missed += 1
                else:
                    self._unread.append(transition)
        self._missed += missed
        if self._unread or self._missed:
            self._something_new.set()

    def offer_progress(self, transitions: Iterable[Transition]) -> None:
        """Take progress, if this watcher wants it. Excess progress is dropped and not counted."""
        if self.wants_progress:
            # Keep half of the room for transitions, which must not be missed.
            room = max(0, WATCHER_BACKLOG // 2 - len(self._unread))
            self.offer(list(filter(self._wants, transitions))[:room])

    async def batches(self) -> AsyncIterator[tuple[list[Transition], int]]:
        """New transitions and the number left out, whenever there are some; until the end."""
        while True:
            await self._something_new.wait()
            if not self._is_over:
                # Earlier transitions of another server may still be on their way, and come first.
                await asyncio.sleep(WATCH_GATHERING.total_seconds())
            self._something_new.clear()
            batch, missed = in_order(self._unread), self._missed
            self._unread.clear()
            self._missed = 0
            if batch or missed:
                yield batch, missed
            if self._is_over:
                return

    def end(self) -> None:
        """End the batches once the unread transitions are delivered."""
        self._is_over = True
        self._something_new.set()

    def _wants(self, transition: Transition) -> bool:
        return (not self._topics or transition.topic in self._topics) and (
            not self._job_ids or transition.job_id in self._job_ids
        )


class Follower(Protocol):
    """Receives transitions that finish jobs."""

    def offer(self, transitions: Iterable[Transition], missed: int = 0) -> None: ...

    def end(self) -> None: ...


class Watchers:
    def __init__(self, line: WakeupLine) -> None:
        self._line = line
        self._watchers: set[Watcher] = set()
        self._followers: set[Follower] = set()
        self._others_watch_until = 0.0
        self._others_watch_progress_until = 0.0
        self._others_await_until = 0.0
        self._has_asked = False
        self.loop = Loop("watchers", self._remind, WATCH_REMINDER)
        self._line.listen(self._on_wakeup)

    @property
    def is_watched(self) -> bool:
        """Whether there is a watcher, here or at another server."""
        return bool(self._watchers) or lease_clock() < self._others_watch_until

    def publish(self, changes: Callable[[], Collection[Transition]]) -> None:
        """Publish to watchers on all servers. `changes` is not evaluated when there are none.

        For transitions that finish no job.
        """
        if self.is_watched:
            self._send(changes())

    def publish_ends(self, changes: Callable[[], Collection[Transition]]) -> None:
        """Do the same for transitions that may finish jobs: followers are interested in them as well."""
        if self.is_watched:
            self._send(changes())
        elif self._followers or lease_clock() < self._others_await_until:
            self._send([transition for transition in changes() if transition.status in TERMINAL])

    def _send(self, transitions: Collection[Transition]) -> None:
        if not transitions:
            return
        for watcher in (*self._watchers, *self._followers):
            watcher.offer(transitions)
        if lease_clock() < max(self._others_watch_until, self._others_await_until):
            self._line.announce(Wakeup(transitions=tuple(transitions)))

    def publish_progress(self, changes: Callable[[], Collection[Transition]]) -> None:
        """Do the same for transitions that have progress, for the watchers that want it."""
        others_watch = lease_clock() < self._others_watch_progress_until
        if not others_watch and not self._has_watcher_of_progress:
            return
        transitions = changes()
        for watcher in self._watchers:
            watcher.offer_progress(transitions)
        if others_watch and transitions:
            self._line.announce(Wakeup(progress=tuple(transitions)))

    @property
    def _has_watcher_of_progress(self) -> bool:
        return any(watcher.wants_progress for watcher in self._watchers)

    @contextmanager
    def watching(
        self, topics: Collection[str], job_ids: Collection[str], *, progress: bool = False
    ) -> Iterator[Watcher]:
        """Receive transitions for the length of the block; with `progress`, progress too."""
        watcher = Watcher(frozenset(topics), frozenset(job_ids), wants_progress=progress)
        self._watchers.add(watcher)
        # Other servers begin to send when they read this, some 20 ms from now.
        self._line.announce(Wakeup(watching=True, watching_progress=progress))
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def follow(self, follower: Follower) -> None:
        """Offer transitions that finish jobs to the follower from now on, and maybe others."""
        self._followers.add(follower)
        self._line.announce(Wakeup(awaiting=True))

    def unfollow(self, follower: Follower) -> None:
        self._followers.discard(follower)

    def end_watching(self) -> None:
        """End the streams of the watchers and followers here: this server stops."""
        for watcher in (*self._watchers, *self._followers):
            watcher.end()

    async def _remind(self) -> None:
        """Ask other servers to keep sending, while there is a watcher or a follower here."""
        if not self._has_asked:
            # Ask which servers watch: until their next reminder they would miss jobs that end here.
            self._has_asked = True
            self._line.announce(Wakeup(asking=True))
        self._announce_interest()

    def _announce_interest(self) -> None:
        if self._watchers or self._followers:
            self._line.announce(
                Wakeup(
                    watching=bool(self._watchers),
                    watching_progress=self._has_watcher_of_progress,
                    awaiting=bool(self._followers),
                )
            )

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        until = lease_clock() + WATCH_INTEREST.total_seconds()
        if wakeup.watching:
            self._others_watch_until = until
        if wakeup.watching_progress:
            self._others_watch_progress_until = until
        if wakeup.awaiting:
            self._others_await_until = until
        if wakeup.asking:
            self._announce_interest()
        if wakeup.transitions or wakeup.missed:
            for watcher in (*self._watchers, *self._followers):
                watcher.offer(wakeup.transitions, wakeup.missed)
        for watcher in self._watchers if wakeup.progress else ():
            watcher.offer_progress(wakeup.progress)
