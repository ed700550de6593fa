"""The pause switches and the states of workers in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pulse_server.domain.dispatch import DispatchState, Pause
from pulse_server.domain.workers import WorkerState
from pulse_server.memory.clock import ControlledClock


class InMemoryDispatchRepo:
    def __init__(self, clock: ControlledClock | None = None) -> None:
        self.state = DispatchState()
        self._clock = clock or ControlledClock()

    async def read_gate(self) -> DispatchState:
        return self.state

    async def pause_everything(self, reason: str, by: str = "") -> None:
        self.state = replace(self.state, everything=Pause(reason, self._clock.now(), by))

    async def resume_everything(self) -> None:
        self.state = replace(self.state, everything=None)

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None:
        paused = {topic: Pause(reason, self._clock.now(), by)}
        self.state = replace(self.state, topics={**self.state.topics, **paused})

    async def resume_topic(self, topic: str) -> None:
        topics = {name: pause for name, pause in self.state.topics.items() if name != topic}
        self.state = replace(self.state, topics=topics)

    async def set_worker_state(
        self, worker_id: str, states: Mapping[str, str], reason: str, by: str = ""
    ) -> None:
        workers = dict(self.state.workers)
        for run_id, name in states.items():
            before = workers.get((worker_id, run_id))
            set_at = before.set_at if before is not None and before.name == name else self._clock.now()
            workers[worker_id, run_id] = WorkerState(name, reason, set_at, by)
        self.state = replace(self.state, workers=workers)

    async def resume_worker(self, worker_id: str) -> bool:
        workers = {process: state for process, state in self.state.workers.items() if process[0] != worker_id}
        before, self.state = self.state, replace(self.state, workers=workers)
        return before.workers != workers
