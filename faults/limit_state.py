"""What runs, what waits, and which limits are in force, at each commit of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from faults.changes import LimitEvent

START, END, WAIT, DROP = "start", "end", "wait", "drop"


class Policy(NamedTuple):
    """What holds for a topic. See pulse.limit_policies."""

    pool: str
    per_lane: int | None = None
    lane_starts: int | None = None
    lane_seconds: float | None = None
    ordered: bool = False
    ages: bool = False
    retired: bool = False
    closed_until: str | None = None


class Pool(NamedTuple):
    """What holds for the topics of a pool together."""

    limit: int | None = None
    starts: int | None = None
    seconds: float | None = None
    closed_until: int | None = None


class Waiting(NamedTuple):
    """A job of a lane that may start: where it stands, and since which commit."""

    priority: int
    submitted_at: int
    since: int


Lane = tuple[str, str]


@dataclass
class LimitState:
    """The state after the last event that was applied."""

    policies: dict[str, Policy] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    own_limits: dict[Lane, int] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)  # by topic
    running_in: Counter[Lane] = field(default_factory=Counter)
    waiting: defaultdict[Lane, dict[str, Waiting]] = field(default_factory=lambda: defaultdict(dict))

    def apply(self, event: LimitEvent) -> None:
        lane = (event.name, event.lane or "")
        match event.what:
            case "policy":
                self._set_policy(event)
            case "pool" if event.facts is None:
                self.pools.pop(event.name, None)
            case "pool":
                self.pools[event.name] = Pool(**event.facts, closed_until=event.moment)
            case "lane" if event.facts is None or event.facts["limit"] is None:
                self.own_limits.pop(lane, None)
            case "lane":
                self.own_limits[lane] = event.facts["limit"]
            case "wait":
                assert event.job_id is not None
                assert event.facts is not None
                self.waiting[lane][event.job_id] = Waiting(
                    event.facts["priority"], event.moment or 0, event.at
                )
            case "drop":
                self.waiting[lane].pop(event.job_id or "", None)
            case "start" | "end":
                step = 1 if event.what == START else -1
                self.running[event.name] += step
                self.running_in[lane] += step
                self.waiting[lane].pop(event.job_id or "", None)

    def _set_policy(self, event: LimitEvent) -> None:
        if event.facts is None:
            self.policies.pop(event.name, None)
        else:
            facts = {name: event.facts[name] for name in Policy._fields}
            self.policies[event.name] = Policy(**facts)

    def running_at(self, pool: str) -> int:
        """How many jobs of the topics of a pool run."""
        return sum(self.running[topic] for topic, policy in self.policies.items() if policy.pool == pool)

    def limit_of(self, lane: Lane) -> int | None:
        """How many jobs of a lane may run at once. Those without a lane have no such limit."""
        policy = self.policies.get(lane[0])
        if policy is None or policy.per_lane is None or not lane[1]:
            return None
        return policy.per_lane if policy.ordered else self.own_limits.get(lane, policy.per_lane)


def replay(events: Iterable[LimitEvent]) -> Iterator[tuple[LimitState, LimitEvent]]:
    """Each event with the state before it. The same state each time: it changes with the next step."""
    state = LimitState()
    for event in events:
        yield state, event
        state.apply(event)
