"""Switches that a test turns without a database, and a roster that records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import DispatchState, Pause, WorkerState
from pulse_server.jobs.rules import Claim, Level
from tests.fakes.store import LEASE
from tests.fakes.wakeups import FakeWakeupLine


class FakeSwitches:
    """The pause switches, and the states of workers. `is_away` makes every method raise Unavailable."""

    is_away = False

    def __init__(self) -> None:
        self._state = DispatchState()

    @property
    def state(self) -> DispatchState:
        if self.is_away:
            raise Unavailable("The database is away.")
        return self._state

    @state.setter
    def state(self, state: DispatchState) -> None:
        self._state = state

    async def read_gate(self) -> DispatchState:
        return self.state

    async def pause_everything(self, reason: str, by: str = "") -> None:
        self.state = replace(self.state, everything=Pause(reason, datetime.now(UTC), by))

    async def resume_everything(self) -> None:
        self.state = replace(self.state, everything=None)

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None:
        paused = {topic: Pause(reason, datetime.now(UTC), by)}
        self.state = replace(self.state, topics={**self.state.topics, **paused})

    async def resume_topic(self, topic: str) -> None:
        topics = {name: pause for name, pause in self.state.topics.items() if name != topic}
        self.state = replace(self.state, topics=topics)

    async def set_worker_state(
        self, worker_id: str, states: Mapping[str, str], reason: str, by: str = ""
    ) -> None:
        now = datetime.now(UTC)
        changed = {(worker_id, run): WorkerState(name, reason, now, by) for run, name in states.items()}
        self.state = replace(self.state, workers={**self.state.workers, **changed})

    async def resume_worker(self, worker_id: str) -> bool:
        before = self.state.workers
        workers = {process: state for process, state in before.items() if process[0] != worker_id}
        self.state = replace(self.state, workers=workers)
        return before != workers


def limit_topic(switches: FakeSwitches, *topics: str, pool: str | None = None, ahead: bool = False) -> None:
    """Let the topics have limits, all of them counted in this pool or each in its own."""
    limited = {**switches.state.limited, **{topic: pool or topic for topic in topics}}
    may_run_ahead = switches.state.ahead.union(topics) if ahead else switches.state.ahead.difference(topics)
    switches.state = replace(switches.state, limited=limited, ahead=may_run_ahead)


def unlimit_topic(switches: FakeSwitches, topic: str) -> None:
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
