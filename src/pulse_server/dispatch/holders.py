"""Which sessions hold a job, by this replica's books."""

from __future__ import annotations

from pulse_server.dispatch.sessions import Session
from pulse_server.domain.jobs import Claim


class Holders:
    """Nearly always one session per job; two while a worker that lost its lease still counts on the job."""

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Session, ...]] = {}
        self.job_ids = self._sessions.keys()

    def add(self, job_id: str, session: Session) -> None:
        others = self._sessions.get(job_id)
        self._sessions[job_id] = (session,) if others is None else (*others, session)

    def remove(self, job_id: str, session: Session) -> None:
        others = tuple(other for other in self._sessions.pop(job_id, ()) if other is not session)
        if others:
            self._sessions[job_id] = others

    def take_off(self, claim: Claim) -> tuple[Session, ...]:
        """Strike the claim from the books. Returns the sessions that held the job by it."""
        job_id = claim.job_id
        holders = self._sessions.get(job_id)
        if holders is None:
            return ()
        found: tuple[Session, ...]
        if len(holders) == 1 and holders[0].holds(claim):  # nearly always
            del self._sessions[job_id]
            found = holders
        else:
            found = tuple(session for session in holders if session.holds(claim))
            for session in found:
                self.remove(job_id, session)
        for session in found:
            session.settle(job_id)
        return found
