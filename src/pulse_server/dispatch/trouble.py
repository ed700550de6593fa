"""Dispatch that fails: whose claims failed, how long they rest, and what the log says of it. ADR-0046"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from pulse_server import tuning
from pulse_server.dispatch.groups import Group
from pulse_server.domain.errors import PulseError

log = logging.getLogger(__name__)

_TOPICS_LOGGED = 5


class Trouble:
    """A group whose claim failed rests, and comes last. The others are served meanwhile."""

    def __init__(self) -> None:
        self._next_tick = 0.0
        self._failures_since_tick = 0
        self._is_look_failing = False
        self._probed = 0

    def new_round(self, next_tick: float) -> None:
        """A tick has come. The next one is at that time of the loop's clock."""
        self._failures_since_tick = 0
        self._next_tick = next_tick

    def permits(self, group: Group, *, is_last_lane: bool) -> bool:
        """Whether a claim for the group may be made now."""
        if self._failures_since_tick >= tuning.CLAIM_FAILURES:
            return False
        if not group.failures:
            return True
        return not is_last_lane and asyncio.get_running_loop().time() >= group.rests_until

    def claim_failed(self, group: Group, error: Exception, groups: Collection[Group]) -> None:
        """Let the group rest. If no other one is well it is the database's trouble: tried at each tick."""
        self._failures_since_tick += 1
        if not isinstance(error, PulseError):
            log.error("dispatch_failed", extra={"topics": _some(group.topics)}, exc_info=error)
        elif not group.failures:
            log.warning("dispatch_failing", extra={"topics": _some(group.topics), "reason": str(error)})
        group.failures += 1
        if any(not other.failures and other.has_room for other in groups):
            doubled = tuning.CLAIM_REST * 2 ** min(group.failures - 1, 10)
            rest = min(doubled, tuning.CLAIM_LONGEST_REST).total_seconds()
            group.rests_until = asyncio.get_running_loop().time() + rest
        else:
            group.rests_until = self._next_tick

    def claim_succeeded(self, group: Group) -> None:
        self._failures_since_tick = 0
        if group.failures:
            log.info("dispatch_recovered", extra={"topics": _some(group.topics)})
            group.failures = 0

    def look_failed(self, error: Exception) -> None:
        if not isinstance(error, PulseError):
            log.error("dispatch_failed", extra={"topics": []}, exc_info=error)
        elif not self._is_look_failing:
            log.warning("dispatch_failing", extra={"topics": [], "reason": str(error)})
        self._is_look_failing = True

    def look_succeeded(self) -> None:
        if self._is_look_failing:
            log.info("dispatch_recovered", extra={"topics": []})
        self._is_look_failing = False

    def next_probes(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups whose turn it is to be probed by a claim, a few at each tick."""
        first = self._probed % len(groups)
        self._probed = first + tuning.CLAIM_PROBES
        return groups[first : first + tuning.CLAIM_PROBES]


def _some(topics: Collection[str]) -> list[str]:
    return sorted(topics)[:_TOPICS_LOGGED]
