"""Topics with limits among the pause switches in memory, and a roster that records."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from pulse_server.dispatch.roster import Roster
from pulse_server.domain.dispatch import DispatchState
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import Claim, Level
from tests.fakes.in_memory_dispatch import InMemoryDispatchRepo
from tests.fakes.store import LEASE
from tests.fakes.wakeups import FakeWakeupLine


class FakeDispatchRepo(InMemoryDispatchRepo):
    """`is_away` makes every method raise Unavailable."""

    is_away = False

    @property
    def state(self) -> DispatchState:
        if self.is_away:
            raise Unavailable("The database is away.")
        return self._state

    @state.setter
    def state(self, state: DispatchState) -> None:
        self._state = state


def limit_topic(
    switches: InMemoryDispatchRepo, *topics: str, pool: str | None = None, ahead: bool = False
) -> None:
    """Let the topics have limits, all of them counted in this pool or each in its own."""
    limited = {**switches.state.limited, **{topic: pool or topic for topic in topics}}
    may_run_ahead = switches.state.ahead.union(topics) if ahead else switches.state.ahead.difference(topics)
    switches.state = replace(switches.state, limited=limited, ahead=may_run_ahead)


def unlimit_topic(switches: InMemoryDispatchRepo, topic: str) -> None:
    limited = {name: at for name, at in switches.state.limited.items() if name != topic}
    switches.state = replace(switches.state, limited=limited)


class RecordingRoster(Roster):
    """Keeps what it was asked. `has_slots_for` are topics that count as having free slots."""

    def __init__(self, has_slots_for: Collection[str] = ()) -> None:
        self.line = FakeWakeupLine()
        super().__init__(LEASE, self.line)
        self.has_slots_for = set(has_slots_for)
        self.woken: list[set[str] | None] = []
        self.stopped: list[Claim] = []
        self.expired: list[Claim] = []

    def wake(
        self, topics: Collection[str] | None, levels: Iterable[Level] = (), jobs: int = 1
    ) -> Collection[str]:
        self.woken.append(None if topics is None else set(topics))
        return set(super().wake(topics, levels, jobs)) - self.has_slots_for

    def stop_claims(self, claims: Iterable[Claim]) -> None:
        claims = list(claims)
        self.stopped.extend(claims)
        super().stop_claims(claims)

    def expire_claims(self, claims: Iterable[Claim]) -> None:
        claims = list(claims)
        self.expired.extend(claims)
        super().expire_claims(claims)
