"""Watchers: clients that follow jobs through the transitions that any server commits.

Without watchers there is no cost. With one, the servers send their transitions over the wake-up
line. A transition that does not fit is dropped and counted: a watcher must never slow the queue
down. ADR-0026
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from pulse_server.base.loops import Loop, lease_clock
from pulse_server.domain.transitions import Transition, in_order
from pulse_server.jobs.rules import TERMINAL
from pulse_server.wakeups import Wakeup, WakeupLine

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
