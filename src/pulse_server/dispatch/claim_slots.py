"""Claim slots, failures and looks. A slow or failing claim holds up only its own group. ADR-0046

While statements are quick there is one claim slot, and claims run one after the other. A statement
that takes longer than CLAIM_PATIENCE keeps its slot until it ends; a further slot serves other groups.

Looks show which topics have work, in case a wake-up was lost. ADR-0006, ADR-0055
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from pulse_server.base import tuning
from pulse_server.base.errors import LimitsLocked, PulseError
from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.groups import Group
from pulse_server.dispatch.roster import Roster

# A longer claim no longer delays other groups: ten times the time of a full one (docs/adr/0046).
CLAIM_PATIENCE = timedelta(milliseconds=250)
# How long a group or a limited topic rests after a claim that failed, doubled with each in a row, while
# others are served.
CLAIM_REST = timedelta(milliseconds=500)
CLAIM_LONGEST_REST = timedelta(seconds=4)
# Claims that may fail between two ticks without one that succeeds: the database is away, and each costs a
# connection. Also how many limited topics that have failed before may be tried again between two ticks.
CLAIM_FAILURES = 4
# After a limited topic failed again, no such topic is tried for so many times as long as that took: a claim
# that waits for a lock keeps its workers from other topics.
REPEAT_REST = 3
# Groups that are probed by a claim of their own at each tick while the look at all topics fails.
CLAIM_PROBES = 20
LONGEST_REST_SECONDS = 10.0  # between full looks: one that waited for a lock does not show their cost

log = logging.getLogger(__name__)

_TOPICS_LOGGED = 5


class ClaimSlot:
    """One run of the dispatch loop. Once relieved it ends after its current statement."""

    def __init__(self) -> None:
        self.is_relieved = False
        self.alarm: asyncio.TimerHandle | None = None


class ClaimSlots:
    def __init__(self, serve: Callable[[ClaimSlot], Coroutine[None, None, None]], *, most: int) -> None:
        self._serve = serve
        self._most = most
        self._held_up = 0
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def is_last(self) -> bool:
        """Whether the serving slot is the last one: no further slot may relieve it."""
        return self._tasks is None or self._held_up >= self._most - 1

    async def run(self) -> None:
        """Serve until the serving slot returns without having been relieved."""
        async with asyncio.TaskGroup() as self._tasks:
            self._begin()

    @contextmanager
    def step(self, claim_slot: ClaimSlot) -> Iterator[None]:
        """Run a statement in the slot. If it is slow, another slot takes over."""
        self._watch(claim_slot)
        try:
            yield
        finally:
            if claim_slot.alarm is not None:
                claim_slot.alarm.cancel()
            if claim_slot.is_relieved:
                self._held_up -= 1

    def _begin(self) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._serve(ClaimSlot()))

    def _watch(self, claim_slot: ClaimSlot) -> None:
        patience = CLAIM_PATIENCE.total_seconds()
        claim_slot.alarm = asyncio.get_running_loop().call_later(patience, self._relieve, claim_slot)

    def _relieve(self, claim_slot: ClaimSlot) -> None:
        if self.is_last:
            self._watch(claim_slot)
            return
        claim_slot.is_relieved = True
        self._held_up += 1
        self._begin()


@dataclasses.dataclass
class Trouble:
    """A limited topic that is claimed alone. Without a failure of its own it is only suspected."""

    failures: int = 0
    rests_until: float = 0.0


class Failures:
    """Tracks failed claims. A group whose claim failed waits, and then comes after other groups.

    Limited topics are claimed together. After a failure each of them is claimed alone until a claim
    succeeds. One that fails alone rests like a group. The other limited topics of its workers come
    first, and are claimed as usual.
    """

    def __init__(self) -> None:
        self._next_tick = 0.0
        self._failures_since_tick = 0
        self._is_probe_failing = False
        self._probed = 0
        self._troubled: dict[str, Trouble] = {}
        self._repeats_since_tick = 0
        # No limited topic that has failed alone is claimed before.
        self._no_repeat_before = 0.0
        self._healthy_had_turn = False

    def new_round(self, next_tick: float) -> Collection[str]:
        """A tick has come, the next one at that time of the loop's clock. Returns topics to claim alone."""
        self._failures_since_tick = self._repeats_since_tick = 0
        self._next_tick = next_tick
        return self._due(self._troubled)

    def permits(self, group: Group, *, is_last_slot: bool) -> bool:
        """Whether a claim for the group may be made now."""
        if self._failures_since_tick >= CLAIM_FAILURES:
            return False
        if not group.failures:
            return True
        return not is_last_slot and asyncio.get_running_loop().time() >= group.rests_until

    def claim_failed(self, group: Group, error: Exception, groups: Collection[Group]) -> None:
        """Let the group wait. If no other group's claims succeed the database is down: try at each tick."""
        self._failures_since_tick += 1
        if not isinstance(error, PulseError):
            log.error("dispatch_failed", extra={"topics": _some(group.topics)}, exc_info=error)
        elif not group.failures:
            log.warning("dispatch_failing", extra={"topics": _some(group.topics), "reason": str(error)})
        group.failures += 1
        if any(not other.failures and other.has_slots for other in groups):
            group.rests_until = asyncio.get_running_loop().time() + _rest_seconds(group.failures)
        else:
            group.rests_until = self._next_tick

    def claim_succeeded(self, group: Group) -> None:
        self._failures_since_tick = 0
        if group.failures:
            log.info("dispatch_recovered", extra={"topics": _some(group.topics)})
            group.failures = 0

    def next_topics(self, names: Sequence[str], most: int, *, is_last_slot: bool) -> list[str]:
        """The limited topics of the next claim. At random: the first one may take all slots.

        Healthy topics come first, and then take turns with a topic that is claimed alone.
        """
        if not self._troubled:
            return random.sample(names, min(len(names), most))
        healthy = [name for name in names if name not in self._troubled]
        due = [] if is_last_slot else self._due(names)
        if due and (self._healthy_had_turn or not healthy):
            self._healthy_had_turn = False
            return [min(due, key=lambda name: (self._troubled[name].failures, name))]
        self._healthy_had_turn = bool(healthy)
        return random.sample(healthy, min(len(healthy), most))

    def topics_failed(self, topics: Sequence[str], error: Exception, seconds: float) -> None:
        """A claim of limited topics failed after `seconds`. Of several any one may be the cause.

        A topic that is known to fail does not show that the database is away.
        """
        known = len(topics) == 1 and self._troubled.get(topics[0], Trouble()).failures > 0
        # With LimitsLocked the database answers, and other topics can be claimed.
        if not known and not isinstance(error, LimitsLocked):
            self._failures_since_tick += 1
        for topic in topics:
            self._troubled.setdefault(topic, Trouble())
        if len(topics) > 1:
            return
        now = asyncio.get_running_loop().time()
        trouble = self._troubled[topics[0]]
        trouble.failures += 1
        trouble.rests_until = now + _rest_seconds(trouble.failures)
        if known:
            self._repeats_since_tick += 1
            self._no_repeat_before = now + REPEAT_REST * seconds
        elif isinstance(error, PulseError):
            log.warning("dispatch_failing", extra={"topics": list(topics), "reason": str(error)})
        else:
            log.error("dispatch_failed", extra={"topics": list(topics)}, exc_info=error)

    def topics_succeeded(self, topics: Sequence[str]) -> None:
        self._failures_since_tick = 0
        if self._troubled:
            troubles = [(topic, self._troubled.pop(topic)) for topic in topics if topic in self._troubled]
            if recovered := [topic for topic, trouble in troubles if trouble.failures]:
                log.info("dispatch_recovered", extra={"topics": _some(recovered)})

    def _due(self, names: Iterable[str]) -> list[str]:
        """The topics to claim alone now. Those that fail again and again are bounded in number and time:
        their workers claim nothing else meanwhile."""
        now = asyncio.get_running_loop().time()
        may_repeat = self._repeats_since_tick < CLAIM_FAILURES and now >= self._no_repeat_before
        troubles = [(name, trouble) for name in names if (trouble := self._troubled.get(name)) is not None]
        return [
            name
            for name, trouble in troubles
            if not trouble.failures or (may_repeat and now >= trouble.rests_until)
        ]

    def probe_failed(self, error: Exception) -> None:
        if not isinstance(error, PulseError):
            log.error("dispatch_failed", extra={"topics": []}, exc_info=error)
        elif not self._is_probe_failing:
            log.warning("dispatch_failing", extra={"topics": [], "reason": str(error)})
        self._is_probe_failing = True

    def probe_succeeded(self) -> None:
        if self._is_probe_failing:
            log.info("dispatch_recovered", extra={"topics": []})
        self._is_probe_failing = False

    def next_probes(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The next groups to probe by a claim, a few at each tick."""
        first = self._probed % len(groups)
        self._probed = first + CLAIM_PROBES
        return groups[first : first + CLAIM_PROBES]


class Look:
    """Paces looks: after each, the next one waits in proportion to the time that it took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began_at = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self._began_at + min(tuning.SAMPLE_REST * self.seconds, LONGEST_REST_SECONDS)

    def begin(self, now: float) -> None:
        self._began_at = now

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a statement that is the whole look: behind a transaction that is held open it is long."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            yield
        finally:
            self.seconds = now() - began


class Looks:
    """The looks of a hub. A claim of a plain topic without bounds is a look, too."""

    def __init__(self, roster: Roster, claims: Claims, claim_slots: ClaimSlots, failures: Failures) -> None:
        self.plain = Look()
        self.limited = Look()
        self._roster = roster
        self._demand = roster.demand
        self._floors = roster.floors
        self._claims = claims
        self._claim_slots = claim_slots
        self._failures = failures
        self._is_probing = False

    async def tick(self, claim_slot: ClaimSlot, now: float) -> None:
        """Look for work, if the looks before have rested for long enough."""
        if self._roster.limited and self.limited.is_due(now):
            self._look_at_limited(now)
        if self.plain.is_due(now):
            self.plain.begin(now)
            await self._look_at_plain(claim_slot)

    def _look_at_limited(self, now: float) -> None:
        """Have limited topics claimed that have a worker: only a claim knows whether they may start a job.

        The look costs the claims that bring nothing.
        """
        self.limited.begin(now)
        self.limited.seconds = 0.0
        wanted = self._roster.limited.among(self._demand.topics_with_slots())
        self._demand.add_work(self._roster.switches.open_topics(wanted))

    async def _look_at_plain(self, claim_slot: ClaimSlot) -> None:
        """Find the topics that have work, with one small statement for any number of groups. ADR-0055

        The look skips workers without a free slot. Their next claim is a full look instead: a job
        below a floor would wait as long as they have other work.
        """
        self._floors.forget(self._demand.topics_without_slots())
        groups = [
            group for group in self._demand.groups_with_slots() if self._roster.plain_topics(group.topics)
        ]
        topics = self._roster.plain_topics(frozenset(self._demand.topics_with_slots()))
        if len(groups) == 1:
            self._floors.forget(topics)
            self._demand.add_work(topics)  # the claim itself is the look
        elif topics and not self._is_probing:
            self._is_probing = True
            try:
                with self._claim_slots.step(claim_slot), self.plain.measured():
                    ready = await self._claims.topics_with_ready_jobs(topics)
            except Exception as error:
                self._failures.probe_failed(error)
                # The index of one topic may cause the delay: probe a few groups, each by a claim.
                for group in self._failures.next_probes(groups):
                    self._floors.forget(group.topics)
                    self._demand.add_work(group.topics)
            else:
                self._failures.probe_succeeded()
                self._floors.forget(ready)
                self._demand.add_work(ready)
            finally:
                self._is_probing = False


def _some(topics: Collection[str]) -> list[str]:
    return sorted(topics)[:_TOPICS_LOGGED]


def _rest_seconds(failures: int) -> float:
    doubled = CLAIM_REST * (1 << min(failures - 1, 10))
    return min(doubled, CLAIM_LONGEST_REST).total_seconds()
