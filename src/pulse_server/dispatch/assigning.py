"""Claimed jobs go to the sessions of their workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from pulse_server.dispatch.claims import Claims, Reconciler
from pulse_server.dispatch.gate import Gate
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.sessions import Session
from pulse_server.domain.jobs import Claim, ClaimedJob

_worker_id = attrgetter("worker_id")


class Assignments:
    def __init__(self, roster: Roster, claims: Claims, gate: Gate, reconciler: Reconciler) -> None:
        self._roster = roster
        self._claims = claims
        self._gate = gate
        self._reconciler = reconciler

    def assign(self, slots: Sequence[Session], jobs: Sequence[ClaimedJob], claimed_at: float) -> None:
        """Give claimed jobs to their sessions. Release those that can no longer be sent."""
        sessions = {session.worker_id: session for session in slots if not session.is_closing}
        unassigned: list[Claim] = []
        assigned: dict[str, list[ClaimedJob]] = {}
        self._reconciler.note_assigned(jobs)
        paused = self._gate.paused({job.topic for job in jobs}) if self._gate.state.has_pauses else ()
        for worker_id, dealt in groupby(jobs, _worker_id):
            assigned.setdefault(worker_id, []).extend(dealt)
        for worker_id, own in assigned.items():
            session = sessions.get(worker_id)
            # The worker left, or the topic was paused, while the statement was in flight.
            late = own if session is None else [job for job in own if job.topic in paused] if paused else []
            unassigned += [Claim(job.id, job.worker_id, job.attempt) for job in late]
            if session is not None and len(late) < len(own):
                kept = [job for job in own if job.topic not in paused] if late else own
                self._roster.assign(session, kept, claimed_at)
        self._claims.release_soon(unassigned)
