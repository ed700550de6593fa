"""Hand-over: a new job goes to a worker that waits for it, in the statement that stores it. ADR-0030

The jobs of a limited topic are stored and then claimed, in one statement. The claim decides which job of the
topic is next, and whether it may start. ADR-0064
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import lease_clock
from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.groups import find_slots, reserved, slots_for
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.sessions import Session
from pulse_server.jobs.new_jobs import NewJob, Submitted, kinds
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Claim, ClaimedJob

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
        if self._limited and (running := self._slots_that_run(jobs)):
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
        if not self._limited.may_hand_over(topic) or self._roster.switches.paused((topic,)):
            return []
        if not all(job.topic == topic and job.starts_at_once for job in kinds(jobs)):
            return []
        for group in self._demand.idle_first(topic):
            slots = group.slots_that_run(len(jobs))
            if len(slots) == len(jobs):
                self._demand.move_to_end(group, (topic,))
                return slots
        return []
