"""Schedules: timetables, and the scheduler that fires them. Their fires are ordinary jobs.

It imports `work`, `topics`, `dispatch` and the rooms below them. Start with `rules.py`, then `Scheduler` in
`service.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulse_server.base.loops import Loop
from pulse_server.dispatch.publisher import Publisher
from pulse_server.doors.callers import Callers
from pulse_server.schedules.rpcs import ScheduleRpcs
from pulse_server.schedules.service import SCHEDULE_INTERVAL, Scheduler, Schedules
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.topics import TopicsRoom
from pulse_server.wakeups import Foundation
from pulse_server.work.jobs import Jobs


@dataclass(frozen=True, slots=True)
class SchedulesRoom:
    store: PostgresScheduleRepo
    scheduler: Scheduler
    rpcs: ScheduleRpcs

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.scheduler.loop,)


def schedules_of(
    base: Foundation, publisher: Publisher, topics: TopicsRoom, jobs: Jobs, callers: Callers
) -> SchedulesRoom:
    store = base.place(PostgresScheduleRepo(base.database))
    service = Schedules(store, publisher)
    return SchedulesRoom(
        store,
        Scheduler(store, publisher, interval=SCHEDULE_INTERVAL),
        ScheduleRpcs(service, jobs, topics.rules, callers, topics.notes),
    )
