"""What applications stored or completed in transactions of their own, as the servers hear of it. ADR-0075"""

from __future__ import annotations

from collections.abc import Sequence

from pulse_server.base.ids import new_id
from pulse_server.database.audit import MOST_IDS, Action
from pulse_server.jobs.reports import Arrival


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
