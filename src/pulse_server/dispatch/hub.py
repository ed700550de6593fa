"""The hub: the one claimer of this server, with its claim slots and its hand-over."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from time import time_ns

from pulse_server.base import tuning
from pulse_server.base.errors import LimitsLocked, PulseError, Unavailable
from pulse_server.base.loops import lease_clock
from pulse_server.dispatch.claims import Claims, Reconciler
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.workers import Group, Session, best_first, find_slots, reserved, slots_for
from pulse_server.jobs.new_jobs import NewJob, Submitted, kinds
from pulse_server.jobs.reads import ClaimedRows
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Claim, ClaimedJob
from pulse_server.wakeups.watchers import Wakeup, WakeupLine

# ---------------------------------------------------------------- claim slots
# Claim slots, failures and looks. A slow or failing claim holds up only its own group.
#
# docs/figures.md#failing-and-slow-claims
#
# While statements are quick there is one claim slot, and claims run one after the other. A statement
# that takes longer than CLAIM_PATIENCE keeps its slot until it ends; a further slot serves other groups.
#
# Looks show which topics have work, in case a wake-up was lost. ADR-0006, ADR-0055

# A longer claim no longer delays other groups: ten times the time of a full one
# (docs/figures.md#failing-and-slow-claims).
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
        if self._roster.limited.pools and self.limited.is_due(now):
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


# ---------------------------------------------------------------- handover
# Hand-over: a new job goes to a worker that waits for it, in the statement that stores it. ADR-0030
#
# The jobs of a limited topic are stored and then claimed, in one statement. The claim decides which job of
# the topic is next, and whether it may start. ADR-0064

_worker_id = attrgetter("worker_id")


class Assignments:
    def __init__(self, roster: Roster, claims: Claims) -> None:
        self._roster = roster
        self._claims = claims

    def assign(self, slots: Sequence[Session], jobs: Sequence[ClaimedJob], claimed_at: float) -> None:
        """Give claimed jobs to their sessions. Release jobs that can no longer be sent."""
        sessions = {session.worker_id: session for session in slots if session.takes_jobs}
        unassigned: list[Claim] = []
        assigned: dict[str, list[ClaimedJob]] = {}
        switches = self._roster.switches
        paused = switches.paused({job.topic for job in jobs}) if switches.has_pauses else ()
        for worker_id, dealt in groupby(jobs, _worker_id):
            assigned.setdefault(worker_id, []).extend(dealt)
        for worker_id, own in assigned.items():
            session = sessions.get(worker_id)
            # The worker left or became quiet, or the topic was paused, while the statement was in flight.
            late = own if session is None else [job for job in own if job.topic in paused] if paused else []
            unassigned += [job.claim for job in late]
            if session is not None and len(late) < len(own):
                kept = [job for job in own if job.topic not in paused] if late else own
                self._roster.assign(session, kept, claimed_at)
        self._claims.release_soon(unassigned)


class Handover:
    def __init__(self, roster: Roster, claims: Claims, assignments: Assignments) -> None:
        self._roster = roster
        self._demand = roster.demand
        self._limited = roster.limited
        self._claims = claims
        self._assignments = assignments

    async def store(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError] | None:
        """Store the jobs, as many as possible leased to workers that wait for such jobs.

        Returns an answer for each, in order; None if no worker waits, and nothing was stored.
        """
        if self._limited.pools and (running := self._slots_that_run(jobs)):
            return await self._store_limited(jobs, running)
        if any(job.start_within is not None or job.lane is not None for job in kinds(jobs)):
            return None
        found = self._idle_slots(jobs)
        if found is None or len({job.id for job in jobs}) < len(jobs):
            return None  # two jobs share an id: the taken one would be ambiguous
        claimed_at = lease_clock()
        slots = [slot for slot in found if slot is not None]
        takers = [None if slot is None else Taker(slot.worker_id, slot.speaks_batches) for slot in found]
        with reserved(slots):
            levels = self._roster.floors.all_levels({job.topic for job in kinds(jobs)})
            answers, taken = await self._claims.hand_over(jobs, takers, levels)
        self._assignments.assign(slots, taken, claimed_at)
        return answers

    def _idle_slots(self, jobs: Sequence[NewJob]) -> list[Session | None] | None:
        """A slot or None for each job, in workers with no other work. Returns None if no slot is free."""
        topics = frozenset(job.topic for job in kinds(jobs) if job.starts_at_once)
        plain = self._roster.plain_topics(topics)
        if not any(map(self._demand.has_slots_for, plain)):
            return None
        slots, chosen = find_slots(
            jobs, lambda topic: self._demand.idle_first(topic) if topic in plain else iter(())
        )
        for group, names in chosen.items():
            self._demand.move_to_end(group, names)
        return slots if chosen else None

    # --- limited topics

    async def _store_limited(
        self, jobs: Sequence[NewJob], slots: Sequence[Session]
    ) -> Sequence[Submitted | PulseError]:
        topic = kinds(jobs)[0].topic
        claimed_at = lease_clock()
        try:
            with self._limited.claiming([topic]), reserved(slots):
                answers, claims = await self._claims.hand_over_limited(topic, jobs, slots_for(slots))
        finally:
            if self._demand.due():  # the hub did not claim these topics during the hand-over
                self._roster.wakeup.set()
        self._assignments.assign(slots, claims.jobs, claimed_at)
        # False even if all slots were filled: jobs of this call that were not taken wake the hub.
        self._limited.claimed([topic], claims.jobs, claims.next_starts, is_filled=False)
        return answers

    def _slots_that_run(self, jobs: Sequence[NewJob]) -> list[Session]:
        """A slot for each job, in workers that have no other work and would start the jobs at once.

        Empty unless all jobs are of one limited topic that has no waiting jobs.
        """
        topic = kinds(jobs)[0].topic
        if topic not in self._limited.pools or not self._limited.may_hand_over(topic):
            return []
        if self._roster.switches.paused((topic,)):
            return []
        if not all(job.topic == topic and job.starts_at_once for job in kinds(jobs)):
            return []
        for group in self._demand.idle_first(topic):
            slots = group.slots_that_run(len(jobs))
            if len(slots) == len(jobs):
                self._demand.move_to_end(group, (topic,))
                return slots
        return []


# ---------------------------------------------------------------- hub
# The hub: the one claimer of this server.
#
# It claims for all connected workers, so the load on the database grows with servers, not with workers
# (ADR-0003). Workers that want the same topics share a group. A group claims when a wake-up says that it may
# have work, and at every tick in case a wake-up was lost.

# Rows per claim statement. From 500 to 1,000 a drain still gained 5%; a larger batch would only make its
# first job wait for the last, 19 µs for each row.
CLAIM_BATCH = 1000
# Statements of dispatch under way at once, if they are slow. The last one is not for groups that failed.
CLAIM_SLOTS = 3
# The next claim may be sent before the jobs of the last one are given out, if their payloads have no more
# bytes: until then these do not count among the bytes that wait for a worker.
READ_LATER_BYTES = 256 * 1024
# Limited topics per claim, which locks their pools. Further topics wait for the next claim.
LIMITED_TOPICS = 20


class Hub:
    def __init__(
        self,
        roster: Roster,
        claims: Claims,
        reconciler: Reconciler,
        line: WakeupLine,
        *,
        tick: timedelta,
    ) -> None:
        self.roster = roster
        self._claims = claims
        self._reconciler = reconciler
        self._tick = tick.total_seconds()
        self._demand = roster.demand
        self._limited = roster.limited
        self._floors = roster.floors
        self._wakeup = roster.wakeup
        self._all_left = asyncio.Event()
        self._has_stopped = asyncio.Event()
        self._has_stopped.set()
        self._is_stopping = False
        self._claim_slots = ClaimSlots(self._serve, most=CLAIM_SLOTS)
        self._failures = Failures()
        self._next_tick = 0.0
        self.looks = Looks(roster, claims, self._claim_slots, self._failures)
        self._assignments = Assignments(roster, claims)
        self._handover = Handover(roster, claims, self._assignments)
        line.listen(self._on_wakeup)

    # --- workers

    def connect(self, session: Session, held: Collection[Claim]) -> None:
        """Connect a worker. `held`: the jobs that it still holds from an earlier stream."""
        if self._is_stopping:
            raise Unavailable("This server is going away. Connect to another one, or again in a moment.")
        self._claims.release_soon(self.roster.add(session, held))
        self._floors.forget(session.topics)
        self._wakeup.set()

    def disconnect(self, session: Session) -> None:
        """Disconnect a worker. Jobs it never received are requeued without costing an attempt."""
        self._claims.release_soon(self.roster.remove(session))
        if not self.roster.groups:
            self._all_left.set()

    # --- other servers

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        if wakeup.topics is None or wakeup.topics:
            self.roster.wake(wakeup.topics, wakeup.levels)
        self._reconciler.report_ended(wakeup.ended, wakeup.lapsed)
        if wakeup.claims_unknown:
            self._reconciler.suspect_all()

    # --- submits

    async def hand_over(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError] | None:
        """Store the jobs, as many as possible leased to workers that wait for such jobs. ADR-0030

        Returns an answer for each, in order; None if no worker waits, and nothing was stored.
        """
        return None if self._is_stopping else await self._handover.store(jobs)

    # --- claims

    async def run(self) -> None:
        """Dispatch until drain() is called."""
        self._has_stopped.clear()
        try:
            await self._claim_slots.run()
        finally:
            self._has_stopped.set()

    async def _serve(self, claim_slot: ClaimSlot) -> None:
        now = asyncio.get_running_loop().time
        while not (self._is_stopping or claim_slot.is_relieved):
            self._wakeup.clear()
            if now() >= self._next_tick:
                self._next_tick = now() + self._tick
                self._demand.add_work(self._failures.new_round(self._next_tick))
                await self.looks.tick(claim_slot, now())
            await self._dispatch(claim_slot)
            if claim_slot.is_relieved:  # another claim slot waits for the next wake-up
                self._wakeup.set()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_tick):
                    await self._wakeup.wait()

    async def _dispatch(self, claim_slot: ClaimSlot) -> None:
        """Claim until every group is out of work or out of slots; one batch for each in turn."""
        served: set[Group] = set()
        while not (self._is_stopping or claim_slot.is_relieved):
            group = self._next_group(served)
            if group is not None:
                served.add(group)
                await self._claim_for(group, claim_slot)
            elif served:
                served.clear()  # all had their turn
            else:
                return

    def _next_group(self, served: Collection[Group]) -> Group | None:
        """The group with work that has the most free slots.

        docs/figures.md#dealing-jobs-to-workers, docs/figures.md#free-slots-by-topic
        """
        due = self._demand.due()
        if not due:
            return None
        open_topics = self.roster.switches.open_topics(frozenset(due))
        if len(open_topics) < len(due):  # paused topics are looked at again when they are resumed
            self._demand.clear_work(frozenset(due) - open_topics)
        groups = self._demand.next_due(due, lambda group: group not in served and self._may_claim(group))
        return best_first(groups)[0] if groups else None

    def _may_claim(self, group: Group) -> bool:
        return not group.is_claiming and self._failures.permits(group, is_last_slot=self._claim_slots.is_last)

    async def _claim_for(self, group: Group, claim_slot: ClaimSlot) -> None:
        if names := self._demand.limited_turn(group):
            await self._claim_limited(group, names, claim_slot)
        else:
            await self._claim_plain(group, claim_slot)

    async def _claim_plain(self, group: Group, claim_slot: ClaimSlot) -> None:
        slots = group.slots(CLAIM_BATCH)
        if not slots:  # the bytes that wait for all workers take every slot
            self._demand.look_again(group.sessions)
            return
        topics = self.roster.plain_topics(group.topics)
        self._demand.clear_work(topics)
        levels = self._floors.levels(topics)
        if levels is not None and not levels:  # nothing was announced since the last full look
            return
        group.is_claiming = True
        sent_at = self._floors.claim_begins(topics)
        claimed_at, sent_at_ns = lease_clock(), time_ns()
        packed = group.packed_slots(slots, CLAIM_BATCH)
        wanted = slots_for(slots, packed)
        with ExitStack() as kept:
            kept.enter_context(reserved(slots, packed))
            try:
                with ExitStack() as stack:
                    stack.enter_context(self._claim_slots.step(claim_slot))
                    if levels is None:
                        stack.enter_context(self.looks.plain.measured())
                    jobs = await self._claims.claim(topics, wanted, levels)
            except Exception as error:
                # A failure of the database must not end a worker's stream, nor the turn of another group.
                self._demand.add_work(topics)
                self._failures.claim_failed(group, error, self.roster.groups)
                return
            finally:
                group.is_claiming = False
            self._failures.claim_succeeded(group)
            is_filled = wanted.is_filled_by(jobs)
            has_to_look = self._floors.claimed(topics, jobs, sent_at, levels, is_filled=is_filled)
            if is_filled or has_to_look:
                self._demand.add_work(topics)
            if is_filled and isinstance(jobs, ClaimedRows) and jobs.payload_bytes <= READ_LATER_BYTES:
                # The database works on the next claim while the jobs of this one are given to their workers.
                later = kept.pop_all()
                asyncio.get_running_loop().call_soon(
                    self._give_out, slots, jobs, claimed_at, sent_at_ns, later
                )
            else:
                self._give_out(slots, jobs, claimed_at, sent_at_ns, kept)

    def _give_out(
        self,
        slots: Sequence[Session],
        jobs: Sequence[ClaimedJob],
        claimed_at: float,
        sent_at_ns: int,
        kept: ExitStack,
    ) -> None:
        """Give the jobs to their workers. `kept` keeps the slots free for them until then."""
        with kept:
            self._claims.publish(jobs, sent_at_ns)
        self._assignments.assign(slots, jobs, claimed_at)

    async def _claim_limited(self, group: Group, names: Sequence[str], claim_slot: ClaimSlot) -> None:
        """Claim as many jobs as the limits permit. The topics come in random order.

        Slots that start jobs at once come first. Jobs for other slots wait in their workers.
        A report, a submit, a timer or the tick shows when further jobs may start.
        """
        topics = self._failures.next_topics(names, LIMITED_TOPICS, is_last_slot=self._claim_slots.is_last)
        if not topics:  # their claims failed: until a later tick
            self._demand.clear_work(names)
            return
        most = self._limited.most_slots(topics, CLAIM_BATCH)
        if self._limited.runs_ahead(group.topics):
            slots, running = group.slots_that_run_first(most)
        else:
            slots = group.slots_that_run(most)
            running = len(slots)
        if not slots:
            self._demand.look_again(group.sessions)
            return
        self._demand.clear_work(topics)
        group.is_claiming = True
        claimed_at = lease_clock()
        wanted = slots_for(slots)._replace(running=running)
        try:
            with self._claim_slots.step(claim_slot), self._limited.claiming(topics), reserved(slots):
                jobs, next_starts = await self._claims.claim_limited(topics, wanted)
        except Exception as error:
            self._demand.add_work(topics)
            self._failures.topics_failed(topics, error, lease_clock() - claimed_at)
            self._limited.claim_failed(topics)
            return
        finally:
            group.is_claiming = False
        self._failures.topics_succeeded(topics)
        if not jobs:
            self.looks.limited.seconds += lease_clock() - claimed_at
        self._assignments.assign(slots, jobs, claimed_at)
        self._limited.claimed(topics, jobs, next_starts, is_filled=wanted.is_filled_by(jobs))

    # --- stopping

    async def drain(self, goodbye: timedelta) -> None:
        """Stop claiming, release undelivered jobs, and ask the workers to leave."""
        self._is_stopping = True
        self._wakeup.set()
        for session in self.roster.sessions:
            session.close()
        if self.roster.groups:
            self._all_left.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), goodbye.total_seconds())
        for session in self.roster.sessions:  # a worker that does not read: its stream will be cut
            self.disconnect(session)
        with suppress(TimeoutError):  # the jobs of the claim in flight must be released too
            await asyncio.wait_for(self._has_stopped.wait(), goodbye.total_seconds())
        self._limited.forget_starts()
        await self._claims.finish_releases(goodbye)
