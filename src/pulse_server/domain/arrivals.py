"""What applications stored or completed in transactions of their own, as the servers hear of it. ADR-0075"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pulse_server.base.ids import new_id
from pulse_server.database.audit import MOST_IDS, Action
from pulse_server.domain.completions import Completions, TopicCompletions
from pulse_server.domain.jobs import Claim, Level


class Arrival(NamedTuple):
    """One call of a function of the interface whose transaction has been committed."""

    topic: str
    jobs: int
    """How many are new. 0: the job was replaced, or completed."""
    ids: Sequence[str]
    """The new jobs; of many, the first. Or the job that was replaced."""
    level: Level | None = None
    """Where jobs became ready. None: nowhere."""
    completed: Claim | None = None
    """The claim that completed the job."""
    ran_seconds: float = 0.0
    replaced_by: str | None = None
    """The role of the database that replaced a waiting job."""


def levels_of(arrivals: Sequence[Arrival], seconds: float) -> list[Level]:
    """Where jobs became ready, as of a statement that was sent this many seconds ago."""
    levels = [arrival.level for arrival in arrivals if arrival.level is not None]
    return [level._replace(age_seconds=level.age_seconds + seconds) for level in levels]


def replacements_of(arrivals: Sequence[Arrival]) -> list[Action]:
    """Return an action for each role that replaced waiting jobs, with the number of them as its count."""
    by_role: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        if arrival.replaced_by is not None:
            by_role.setdefault(arrival.replaced_by, []).append(arrival)
    return [
        Action(
            new_id(),
            "pulse.enqueue",
            user=role,
            role="sql",
            address="",
            topics=tuple(dict.fromkeys(arrival.topic for arrival in replaced))[:MOST_IDS],
            ids=tuple(dict.fromkeys(job_id for arrival in replaced for job_id in arrival.ids))[:MOST_IDS],
            asked={"on_conflict": "replace"},
            count=len(replaced),
        )
        for role, replaced in by_role.items()
    ]


def completions_of(arrivals: Sequence[Arrival]) -> Completions:
    """The jobs that were completed."""
    ends = [(arrival, arrival.completed) for arrival in arrivals if arrival.completed is not None]
    by_topic = [
        TopicCompletions(arrival.topic, [arrival.ran_seconds], [place], in_workflows=True)  # perhaps
        for place, (arrival, _) in enumerate(ends, 1)
    ]
    return Completions([claim for _, claim in ends], by_topic)
