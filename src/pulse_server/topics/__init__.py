"""Topics: their settings, limits, lanes and holds, and which of them no worker takes.

It imports `dispatch` and the rooms below it. Start with `rules.py` (which value is in force), then
`service.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pulse_server.base.loops import Loop
from pulse_server.dispatch import DispatchRoom
from pulse_server.doors.callers import Callers
from pulse_server.topics.rpcs import OwnTopics, TopicRpcs, UnservedNotes, UnservedTopics
from pulse_server.topics.rules import Grace
from pulse_server.topics.service import LimitsOfTopics, LimitSweep, SettingsOfTopics, TopicRules
from pulse_server.topics.store import PostgresLimitRepo, PostgresTopicSettings
from pulse_server.wakeups import Foundation


@dataclass(frozen=True, slots=True)
class TopicsRoom:
    limits: PostgresLimitRepo
    settings: SettingsOfTopics
    limit_sweep: LimitSweep
    unserved: UnservedTopics
    notes: UnservedNotes
    rpcs: TopicRpcs

    @property
    def rules(self) -> TopicRules:
        return self.settings.rules

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.settings.loop, self.limit_sweep.loop)


def topics_of(
    base: Foundation,
    limits: PostgresLimitRepo,
    dispatch: DispatchRoom,
    callers: Callers,
    *,
    workers_by_topic: Callable[[], Awaitable[Mapping[str, int]]],
    topics_of_workers: Callable[[Callable[[str], bool]], Awaitable[set[str]]],
) -> TopicsRoom:
    """`workers_by_topic` counts workers over all servers; `topics_of_workers` returns the topics of some."""
    settings = base.settings
    stored = base.place(
        PostgresTopicSettings(base.database, Grace(settings.retention_grace, settings.retention.entries))
    )
    of_topics = SettingsOfTopics(stored, limits, dispatch.publisher, dispatch.gate.refresh, settings.topics)
    base.line.listen(of_topics.heard)
    unserved = UnservedTopics(dispatch.roster.demand, workers_by_topic)
    return TopicsRoom(
        limits,
        of_topics,
        LimitSweep(limits, dispatch.gate, dispatch.publisher, base.metrics),
        unserved,
        UnservedNotes(unserved, callers),
        TopicRpcs(
            of_topics,
            LimitsOfTopics(limits, of_topics, dispatch.publisher),
            callers,
            OwnTopics(dispatch.roster, topics_of_workers),
        ),
    )
