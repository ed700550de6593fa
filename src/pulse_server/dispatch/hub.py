"""The hub: the one claimer of this server.

It claims for all connected workers, so the load on the database grows with servers, not with workers
(ADR-0003). Workers that want the same topics share a group. A group claims when a wake-up says that it may
have work, and at every tick in case a wake-up was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta

from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.base.loops import lease_clock
from pulse_server.dispatch.claim_slots import ClaimSlot, ClaimSlots, Failures, Looks
from pulse_server.dispatch.claims import Claims, Reconciler
from pulse_server.dispatch.groups import Group, best_first, reserved, slots_for
from pulse_server.dispatch.handover import Assignments, Handover
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.sessions import Session
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.rules import Claim
from pulse_server.wakeups.watchers import Wakeup, WakeupLine

# Rows per claim statement. From 500 to 1,000 a drain still gained 5%; a larger batch would only make its
# first job wait for the last, 19 µs for each row.
CLAIM_BATCH = 1000
# Statements of dispatch under way at once, if they are slow. The last one is not for groups that failed.
CLAIM_SLOTS = 3
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
        """The group with work that has the most free slots. ADR-0037, ADR-0044"""
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
        claimed_at = lease_clock()
        packed = group.packed_slots(slots, CLAIM_BATCH)
        wanted = slots_for(slots, packed)
        try:
            with ExitStack() as stack:
                stack.enter_context(self._claim_slots.step(claim_slot))
                stack.enter_context(reserved(slots, packed))
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
