"""Hand-over: a new job goes to a worker that waits for it, in the statement that stores it. ADR-0030

The jobs of a governed topic are stored and then claimed, in one statement. Which job is next, and whether it
may start, is decided by the claim that all jobs of the topic pass. ADR-0064
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from pulse_server.clock import lease_clock
from pulse_server.dispatch.assigning import Assignments
from pulse_server.dispatch.claims import Claims
from pulse_server.dispatch.gate import Gate
from pulse_server.dispatch.governed import NextStarts
from pulse_server.dispatch.groups import find_slots, reserved, slots_for
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.sessions import Session
from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import NewJob, Submitted
from pulse_server.domain.uniform_jobs import kinds
from pulse_server.repos.jobs import Taker


class Handover:
    def __init__(
        self, roster: Roster, claims: Claims, gate: Gate, assignments: Assignments, next_starts: NextStarts
    ) -> None:
        self._demand = roster.demand
        self._floors = roster.floors
        self._wakeup = roster.wakeup
        self._claims = claims
        self._gate = gate
        self._assignments = assignments
        self._next_starts = next_starts
        # The governed topics of which the last claim left nothing. In the others, jobs wait for a limit or a
        # rate: a hand-over would only hold the turnstile.
        self._emptied: set[str] = set()

    async def store(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError] | None:
        """Store the jobs, as many as possible leased to workers that wait for such jobs.

        Returns an answer for each, in order; None if no worker waits, and nothing was stored.
        """
        if self._demand.governed and (running := self._slots_that_run(jobs)):
            return await self._store_governed(jobs, running)
        if any(job.start_within is not None or job.lane is not None for job in kinds(jobs)):
            return None
        found = self._idle_slots(jobs)
        if found is None or len({job.id for job in jobs}) < len(jobs):
            return None  # of two jobs with one id it would not be known which one has the taker
        claimed_at = lease_clock()
        slots = [slot for slot in found if slot is not None]
        takers = [None if slot is None else Taker(slot.worker_id, slot.speaks_batches) for slot in found]
        with reserved(slots):
            levels = self._floors.all_levels({job.topic for job in kinds(jobs)})
            answers, taken = await self._claims.hand_over(jobs, takers, levels)
        self._assignments.assign(slots, taken, claimed_at)
        return answers

    def _idle_slots(self, jobs: Sequence[NewJob]) -> list[Session | None] | None:
        """A slot or None for each job, in workers with no other work. Returns None if no slot is free."""
        topics = frozenset(job.topic for job in kinds(jobs) if job.starts_at_once)
        open_topics = self._gate.plain_topics(topics)
        if not any(map(self._demand.has_slots_for, open_topics)):
            return None
        slots, chosen = find_slots(
            jobs, lambda topic: self._demand.idle_first(topic) if topic in open_topics else iter(())
        )
        for group, names in chosen.items():
            self._demand.move_to_end(group, names)
        return slots if chosen else None

    # --- governed topics

    def claimed(self, topics: Collection[str], next_starts: Container[str], *, is_filled: bool) -> None:
        """A claim of these governed topics came back, with a next start where more may wait."""
        for topic in topics:
            if is_filled or topic in next_starts:
                self._emptied.discard(topic)
            else:
                self._emptied.add(topic)

    async def _store_governed(
        self, jobs: Sequence[NewJob], slots: Sequence[Session]
    ) -> Sequence[Submitted | PulseError]:
        topic = kinds(jobs)[0].topic
        claimed_at = lease_clock()
        try:
            with self._demand.claiming([topic]), reserved(slots):
                answers, claims = await self._claims.hand_over_governed(topic, jobs, slots_for(slots))
        finally:
            if self._demand.due():  # the hub has made no claim for these topics meanwhile
                self._wakeup.set()
        self._assignments.assign(slots, claims.jobs, claimed_at)
        # Even if all slots were filled: jobs of these that were not taken wake the hub.
        self.claimed([topic], claims.next_starts, is_filled=False)
        self._next_starts.claimed({job.topic for job in claims.jobs}, claims.next_starts)
        return answers

    def _slots_that_run(self, jobs: Sequence[NewJob]) -> list[Session]:
        """A slot for each of the jobs, in workers that have no other work and would start them at once.

        None if they are not all of one governed topic, or if others of it may wait.
        """
        topic = kinds(jobs)[0].topic
        if topic not in self._emptied or self._demand.is_claiming(topic):
            return []
        if topic not in self._demand.governed or not self._gate.open_topics(frozenset((topic,))):
            return []
        if not all(job.topic == topic and job.starts_at_once for job in kinds(jobs)):
            return []
        for group in self._demand.idle_first(topic):
            slots = group.slots_that_run(len(jobs))
            if len(slots) == len(jobs):
                self._demand.move_to_end(group, (topic,))
                return slots
        return []
