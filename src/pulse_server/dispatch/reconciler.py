"""Finds out which claims of this server's workers have ended elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from pulse_server.dispatch.roster import Roster
from pulse_server.domain.jobs import Claim, ClaimedJob
from pulse_server.service.claims import Claims


class Reconciler:
    """An announcement may be lost, and a report may go to another server: the database knows."""

    def __init__(self, claims: Claims, roster: Roster, stop: Callable[[Collection[Claim]], None]) -> None:
        self._claims = claims
        self._roster = roster
        self._stop = stop
        self._suspects: frozenset[Claim] = frozenset()
        # The jobs that were handed out while the database is asked.
        self._handed_out: set[str] | None = None

    async def reconcile(self) -> None:
        """Stop the jobs whose claims have ended. Asks about those only that were held at the last call."""
        held = self._roster.held_claims()
        old, self._suspects = self._suspects & held, held
        if not old:
            return
        handed_out: set[str] = set()
        self._handed_out = handed_out
        try:
            current = await self._claims.still_held(list(old))
        finally:
            self._handed_out = None
        # A job that was released and claimed again meanwhile may have the same claim as before.
        self._stop([claim for claim in old - current if claim.job_id not in handed_out])

    def suspect_all(self) -> None:
        """Have the next reconciliation ask about every claim that is held now."""
        self._suspects = self._roster.held_claims()

    def note_handed_out(self, jobs: Iterable[ClaimedJob]) -> None:
        """These jobs are claimed as of now, whatever a statement under way answers."""
        if self._handed_out is not None:
            self._handed_out.update(job.id for job in jobs)
