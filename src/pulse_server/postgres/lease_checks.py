"""Lease checks: claims are settled, expired leases are found and reaped. ADR-0056"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from pulse_server.base.bounds import LEASE_EXPIRED_GROUP, TIME_LIMIT_EXCEEDED_GROUP
from pulse_server.base.errors import PulseError
from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import statements
from pulse_server.domain.jobs import Claim, Reaped
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.row_locks import leave_it
from pulse_server.postgres.rows import THE_BEGINNING

# Lease checks per reaping statement. Each has up to a thousand jobs, at 2 µs a job.
_REAPED_CHECKS = 20
# Settled before a reap: leases may be shorter than the interval at which claims are settled.
_SETTLED_CHECKS = 500
_UNSETTLED_FOR = timedelta(minutes=1)

_SQL = statements("lease_checks.sql")


@dataclass(frozen=True, slots=True)
class Restoration:
    """The result of one page of unfinished jobs: the number read, the last one, and the number of
    running jobs that lacked a lease check."""

    looked_at: int = 0
    reached: PageKey | None = None
    restored: int = 0


class PostgresLeaseCheckRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def settle_claims(self, limit: int, looking_back: timedelta | None = None) -> int:
        """Read claims that are a few seconds old, and keep checks only for jobs that still run.

        Returns the number of checks read, at most `limit`. `looking_back` bounds their age; None:
        any.
        """
        return await _settle(self._database.hot, "settle_claims", limit, looking_back)

    async def restore_lease_checks(self, *, after: PageKey | None, limit: int) -> Restoration:
        """Write missing lease checks for the oldest unfinished jobs after `after`, by
        submission."""
        after = after or THE_BEGINNING
        (row,) = await self._database.hot.fetch(
            "restore_lease_checks", _SQL["restore_lease_checks"], after.moment, after.id, limit
        )
        return Restoration(
            looked_at=row["looked_at"],
            reached=PageKey(row["submitted_at"], str(row["id"])) if row["looked_at"] else None,
            restored=row["restored"],
        )


class ReapPolicy(NamedTuple):
    """For topics without settings of their own: the backoff as JSON, and the grace of time limits."""

    backoff: str | None
    max_crashes: int
    attempt_timeout: timedelta | None
    grace: timedelta


async def reap(
    hot: Connections, name: str, statement: str, limit: int, expired_before: datetime, policy: ReapPolicy
) -> list[Reaped]:
    """Reap the jobs whose leases had expired by then, with the statement `name`; oldest first."""
    # A short lease expires before its claim is settled.
    await _settle(hot, "settle_claims", _SETTLED_CHECKS, _UNSETTLED_FOR)
    reaped: list[Reaped] = []
    while True:
        try:
            # Not after a wait for the whole table: no heartbeat could be stored during it either.
            # ADR-0042
            rows = await hot.fetch(
                name,
                statement,
                *(limit - len(reaped), expired_before, LEASE_EXPIRED_GROUP, _REAPED_CHECKS),
                *policy,
                TIME_LIMIT_EXCEEDED_GROUP,
                if_locked=leave_it,
            )
        except PulseError:
            if reaped:  # these are published; the next tick finds the rest
                return reaped
            raise
        reaped += [
            Reaped(
                Claim(str(row["id"]), row["locked_by"], row["attempts"], row["run"]),
                row["topic"],
                JobStatus(row["status"]),
                row["delivered"],
                row["is_timed_out"],
            )
            for row in rows
            if row["id"] is not None
        ]
        if len(reaped) >= limit or rows[0]["lease_checks"] < _REAPED_CHECKS:
            return reaped


async def _settle(hot: Connections, name: str, limit: int, looking_back: timedelta | None) -> int:
    ((lease_checks,),) = await hot.fetch(name, _SQL[name], limit, looking_back, if_locked=leave_it)
    return int(lease_checks)
