"""The stored steps of claimed jobs, which go to their workers with the jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pulse_server.base.errors import PulseError
from pulse_server.database.connections import Connections
from pulse_server.database.statements import statements
from pulse_server.domain.jobs import ClaimedJob
from pulse_server.domain.steps import STEP_OVERHEAD_BYTES, Step
from pulse_server.postgres.steps import step_from_row

_SQL = statements("steps.sql")
# Byte limits: for one job, and for all jobs of a claim. Workers read further steps themselves.
MOST_BYTES_OF_A_JOB = 64 * 1024
MOST_BYTES = 512 * 1024

log = logging.getLogger(__name__)


async def with_steps(connections: Connections, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
    """Return the jobs with their stored steps.

    Otherwise a worker would need a call for each job: a thousand jobs that wake together would wait
    for one another.
    """
    stepped = [job.id for job in jobs if job.has_steps]
    if not stepped:
        return jobs
    name = "list_steps_of_claimed"
    try:
        rows = await connections.fetch(
            name, _SQL[name], stepped, MOST_BYTES_OF_A_JOB, MOST_BYTES, STEP_OVERHEAD_BYTES
        )
    except PulseError as error:  # the jobs are leased, and their workers can read the steps themselves
        log.warning("steps_not_read", extra={"jobs": len(stepped), "reason": str(error)})
        return jobs
    stored: dict[str, list[Step]] = {}
    for row in rows:
        steps = stored.setdefault(str(row["id"]), [])
        if row["name"] is not None:
            steps.append(step_from_row(row))
    return _with(jobs, stored)


def _with(jobs: Sequence[ClaimedJob], stored: dict[str, list[Step]]) -> list[ClaimedJob]:
    return [job._replace(steps=stored[job.id]) if job.id in stored else job for job in jobs]
