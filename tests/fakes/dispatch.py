"""The pause switches in memory, and a roster that records."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from pulse_server.dispatch.roster import Roster
from pulse_server.domain.dispatch import DispatchState, Pause
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import Claim, Level
from tests.fakes.store import LEASE
from tests.fakes.wakeups import FakeWakeupLine

SINCE = datetime(2030, 1, 1, tzinfo=UTC)


class InMemoryDispatchRepo:
    def __init__(self) -> None:
        self.state = DispatchState()
        self.is_away = False

    async def read_gate(self) -> DispatchState:
        self._answer()
        return self.state

    async def pause_everything(self, reason: str, by: str = "") -> None:
        self._answer()
        self.state = replace(self.state, everything=Pause(reason, SINCE, by))

    async def resume_everything(self) -> None:
        self._answer()
        self.state = replace(self.state, everything=None)

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None:
        self._answer()
        self.state = replace(self.state, topics={**self.state.topics, topic: Pause(reason, SINCE, by)})

    async def resume_topic(self, topic: str) -> None:
        self._answer()
        topics = {name: pause for name, pause in self.state.topics.items() if name != topic}
        self.state = replace(self.state, topics=topics)

    def _answer(self) -> None:
        if self.is_away:
            raise Unavailable("The database is away.")


def limit_topic(
    switches: InMemoryDispatchRepo, *topics: str, turnstile: str | None = None, ahead: bool = False
) -> None:
    """Let the topics have a flow policy, all of them counted at this turnstile or each at its own."""
    limited = {**switches.state.limited, **{topic: turnstile or topic for topic in topics}}
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
