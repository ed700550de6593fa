"""The dispatch hub: the one claimer of this replica.

It knows every connected stream and its free slots, and claims for all of them: the load on the database grows
with replicas, not with workers (docs/adr/0003). Workers that want the same topics share a group. A group is
looked at when a wake-up says that it may have work, and at every tick in case a wake-up was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from pulse_server import tuning
from pulse_server.clock import awake_or_not
from pulse_server.dispatch.backlog import Backlog
from pulse_server.dispatch.groups import Group, roomiest_first, slots_for
from pulse_server.dispatch.lanes import Lane, Lanes
from pulse_server.dispatch.reconciler import Reconciler
from pulse_server.dispatch.releases import Releases
from pulse_server.dispatch.reservation import Reservation, find_places, reserved
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.sessions import Session
from pulse_server.dispatch.trouble import Trouble
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import Claim, ClaimedJob, NewJob
from pulse_server.service.claims import Claims
from pulse_server.service.gate import Gate


class Hub:
    def __init__(self, claims: Claims, gate: Gate, *, tick: timedelta, lease_ttl: timedelta) -> None:
        self._claims = claims
        self._gate = gate
        self._tick = tick.total_seconds()
        self.roster = Roster(lease_ttl)
        self._demand = self.roster.demand
        self.releases = Releases(claims)
        self.reconciler = Reconciler(claims, self.roster, self.stop_claims)
        self._wake = asyncio.Event()
        self.backlog = Backlog(self._has_room_again)
        self._all_left = asyncio.Event()
        self._has_stopped = asyncio.Event()
        self._has_stopped.set()
        self._is_stopping = False
        self._lanes = Lanes(self._serve, most=tuning.CLAIM_LANES)
        self._trouble = Trouble()
        self._next_tick = 0.0
        self._is_looking = False
        self._share = self.backlog.share

    # --- sessions

    def open(self, session: Session, held: Collection[Claim]) -> None:
        """Start to feed a worker. `held`: what it still holds from a stream before this one."""
        if self._is_stopping:
            raise Unavailable("This server is going away. Connect to another one, or again in a moment.")
        self.releases.give_back(self.roster.enter(session, held))
        self._wake.set()

    def close(self, session: Session) -> None:
        """Stop to feed a worker. What never reached it goes back in line at once, with its attempt."""
        self.releases.give_back(self.roster.leave(session))
        if not self.roster.groups:
            self._all_left.set()

    def settle(self, claims: Iterable[Claim]) -> None:
        """These jobs no longer take room in the worker that held them by these claims."""
        for claim in claims:
            if self.roster.take_off(claim):
                self._wake.set()

    def answered(self, worker_id: str, claims: Sequence[Claim]) -> None:
        """The worker is done with these jobs. So it is alive, and its event loop runs."""
        take_off = self.roster.take_off
        for claim in claims:
            for session in take_off(claim):
                if session.is_on_probation:
                    session.trust()
        for session in self.roster.sessions_of(worker_id):
            session.trust()
        self._wake.set()

    def resize(self, worker_id: str, capacity: int) -> None:
        """The worker can hold that many from now on."""
        for session in self.roster.sessions_of(worker_id):
            if session.speaks_batches:
                session.resize(capacity)
                self._wake.set()

    def pace(self, worker_id: str, run_seconds: float) -> None:
        """The worker's handlers take about so long."""
        stint = int(tuning.STINT_SECONDS / max(run_seconds, 1e-6))
        for session in self.roster.sessions_of(worker_id):
            session.stint = max(1, min(stint, tuning.STINT_MOST))

    # --- what the signals ask of a dispatcher

    def wake(self, topics: Collection[str] | None) -> Collection[str]:
        self._demand.add_work(topics)
        self._wake.set()
        return {topic for topic in topics or () if not self._demand.has_room_for(topic)}

    def stop_claims(self, claims: Collection[Claim]) -> None:
        for claim in claims:
            for session in self.roster.take_off(claim):
                session.stop_claim(claim)
                self._wake.set()

    def lapse_claims(self, claims: Collection[Claim]) -> None:
        for claim in claims:
            for session in self.roster.take_off(claim):
                session.put_on_probation()
                session.stop_claim(claim)
                self._wake.set()

    def change_gate(self) -> None:
        """Dispatch, or topics, were paused or resumed. What has not started of a paused topic goes back."""
        state = self._gate.state
        if state.has_pauses:
            topics = frozenset() if state.everything is not None else frozenset(state.topics)
            recalled = [claim for session in self.roster.sessions for claim in session.recall(topics)]
            for claim in recalled:
                self.roster.take_off(claim)
            self.releases.give_back(recalled)
        self.wake(None)

    def paused(self, topics: Collection[str]) -> Collection[str]:
        """Those of the topics that are paused."""
        asked = frozenset(topics)
        return asked - self._gate.open_topics(asked)

    # --- what the handover asks of the places in workers

    def reserve(self, jobs: Sequence[NewJob]) -> Reservation | None:
        """Find places for the jobs, in workers for whom no other work is known. None if there is none."""
        topics = frozenset(job.topic for job in jobs if job.starts_at_once)
        open_topics = self._gate.open_topics(topics)
        if self._is_stopping or not any(map(self._demand.has_room_for, open_topics)):
            return None
        places, chosen = find_places(
            jobs, lambda topic: self._demand.idle_first(topic) if topic in open_topics else iter(())
        )
        for group, names in chosen.items():
            self._demand.had_a_turn(group, names)
        return Reservation(places, self._hand_out) if chosen else None

    # --- dispatch

    async def run(self) -> None:
        """Dispatch until drain() is called."""
        self._has_stopped.clear()
        try:
            await self._lanes.run()
        finally:
            self._has_stopped.set()

    async def _serve(self, lane: Lane) -> None:
        now = asyncio.get_running_loop().time
        while not (self._is_stopping or lane.is_relieved):
            self._wake.clear()
            if now() >= self._next_tick:
                self._next_tick = now() + self._tick
                self._trouble.new_round(self._next_tick)
                await self._look_everywhere(lane)
            await self._dispatch(lane)
            if lane.is_relieved:  # another lane waits for the next wake-up
                self._wake.set()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_tick):
                    await self._wake.wait()

    async def _look_everywhere(self, lane: Lane) -> None:
        """Find out which topics have work, with one small statement however many groups there are."""
        groups = [group for group in self._demand.groups_with_room() if self._open_topics(group)]
        topics = self._gate.open_topics(frozenset(self._demand.with_room()))
        if len(groups) == 1:
            self._demand.add_work(topics)  # the claim itself is the probe
        elif topics and not self._is_looking:
            self._is_looking = True
            try:
                with self._lanes.step(lane):
                    ready = await self._claims.topics_with_ready_jobs(topics)
            except Exception as error:
                self._trouble.look_failed(error)
                # One topic's index may be what is slow: a few groups at a time find out for themselves.
                for group in self._trouble.next_probes(groups):
                    self._demand.add_work(group.topics)
            else:
                self._trouble.look_succeeded()
                self._demand.add_work(ready)
            finally:
                self._is_looking = False

    async def _dispatch(self, lane: Lane | None = None) -> None:
        """Claim until every group is out of work or out of room; one batch for each in turn."""
        lane = lane or Lane()
        served: set[Group] = set()
        while not (self._is_stopping or lane.is_relieved):
            group = self._next_group(served)
            if group is not None:
                served.add(group)
                await self._claim_for(group, lane)
            elif served:
                served.clear()  # all had their turn
            else:
                return

    def _next_group(self, served: Collection[Group]) -> Group | None:
        """Whose turn it is: of those with work and room the one with the most room. ADR-0037, ADR-0044"""
        due = self._demand.due()
        if not due:
            return None
        open_topics = self._gate.open_topics(frozenset(due))
        if len(open_topics) < len(due):  # the others are looked at again when they are resumed
            self._demand.take_work(frozenset(due) - open_topics)
        groups = self._demand.next_due(due, lambda group: group not in served and self._may_claim(group))
        return roomiest_first(groups)[0] if groups else None

    def _may_claim(self, group: Group) -> bool:
        return not group.is_claiming and self._trouble.permits(group, is_last_lane=self._lanes.is_last)

    async def _claim_for(self, group: Group, lane: Lane) -> None:
        places = group.places(tuning.CLAIM_BATCH)
        if not places:  # what waits to be sent to all workers takes the room
            self._demand.look_again(group.sessions)
            return
        topics = self._open_topics(group)
        self._demand.take_work(topics)
        group.is_claiming = True
        claimed_at = awake_or_not()
        slots = slots_for(places)
        try:
            with self._lanes.step(lane), reserved(places):
                jobs = await self._claims.claim(topics, slots)
        except Exception as error:
            # A blip of the database must not end a healthy worker's stream, nor the turn of another group.
            self._demand.add_work(topics)
            self._trouble.claim_failed(group, error, self.roster.groups)
            return
        finally:
            group.is_claiming = False
        self._trouble.claim_succeeded(group)
        if slots.is_filled_by(jobs):
            self._demand.add_work(topics)
        self._hand_out(places, jobs, claimed_at)

    def _open_topics(self, group: Group) -> frozenset[str]:
        return self._gate.open_topics(group.topics)

    def _hand_out(self, places: Sequence[Session], jobs: Sequence[ClaimedJob], claimed_at: float) -> None:
        sessions = {session.worker_id: session for session in places if not session.is_closing}
        unclaimed: list[Claim] = []
        assigned: dict[str, list[ClaimedJob]] = {worker_id: [] for worker_id in sessions}
        self.reconciler.note_handed_out(jobs)
        paused = self.paused({job.topic for job in jobs}) if self._gate.state.has_pauses else ()
        for job in jobs:
            own = assigned.get(job.worker_id)
            # The worker left, or the topic was paused, while the statement was under way.
            if own is None or job.topic in paused:
                unclaimed.append(Claim(job.id, job.worker_id, job.attempt))
            else:
                own.append(job)
        for worker_id, own in assigned.items():
            if own:
                self.roster.assign(sessions[worker_id], own, claimed_at)
        self.releases.give_back(unclaimed)

    def _has_room_again(self) -> None:
        """Bytes that waited to be sent have left. The share of each worker may be another one now."""
        if self._share != self.backlog.share:
            self._share = self.backlog.share
            self._demand.look_again(self.roster.sessions)
        self._wake.set()

    # --- stopping

    async def drain(self, goodbye: timedelta) -> None:
        """Claim nothing more, give back what was not delivered, and ask the workers to leave."""
        self._is_stopping = True
        self._wake.set()
        for session in self.roster.sessions:
            session.close()
        if self.roster.groups:
            self._all_left.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), goodbye.total_seconds())
        for session in self.roster.sessions:  # a worker that does not read: its stream will be cut
            self.close(session)
        with suppress(TimeoutError):  # what the claim under way brings must go back too
            await asyncio.wait_for(self._has_stopped.wait(), goodbye.total_seconds())
        await self.releases.finish(goodbye)
