"""Steps and signals of jobs. ADR-0069

It imports `dispatch` and rooms below it. Start with `rules.py`, then `transitions.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulse_server.base.loops import Loop
from pulse_server.dispatch.publisher import Publisher
from pulse_server.doors.callers import Callers
from pulse_server.steps.rpcs import StepRpcs
from pulse_server.steps.service import Steps, StepSweep
from pulse_server.steps.store import PostgresStepRepo
from pulse_server.wakeups import Foundation


@dataclass(frozen=True, slots=True)
class StepsRoom:
    service: Steps
    sweep: StepSweep
    rpcs: StepRpcs

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.sweep.loop,)


def steps_of(base: Foundation, publisher: Publisher, callers: Callers) -> StepsRoom:
    store = base.place(PostgresStepRepo(base.database))
    service = Steps(store, base.jobs, publisher, base.settings.steps)
    return StepsRoom(service, StepSweep(store), StepRpcs(service, callers))
