"""Releases jobs when the worker stops. What cannot be released runs again once its lease ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from pulse import failpoints, tuning
from pulse.errors import PulseError
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.worker.held_jobs import HeldJob
from pulse.worker.progress import encode_progress, in_batches, unsent_progress

logger = logging.getLogger("pulse.worker")


@failpoints.before("worker.releasing")
async def release_all(
    connection: Connection,
    worker_id: str,
    jobs: list[HeldJob],
    timeout_seconds: Callable[[], float],
    settled: Callable[[Sequence[HeldJob]], None],
) -> None:
    """Release the jobs in requests of a bounded size, each of which has the timeout. `settled` gets the jobs
    of each, also if they could not be released."""
    for some in in_batches(jobs, tuning.CLAIMS_PER_RELEASE):
        await _release_or_warn(connection, worker_id, some, timeout_seconds)
        for job in some:
            job.stop_reason = "it was released"
        settled(some)


async def _release_or_warn(
    connection: Connection, worker_id: str, jobs: Sequence[HeldJob], timeout_seconds: Callable[[], float]
) -> None:
    """Release the jobs, those whose rows are locked again and again for as long as there is time."""
    began = time.monotonic()
    while True:
        reported = [unsent_progress(job) for job in jobs]
        request = pb.ReleaseRequest(
            worker_id=worker_id,
            claims=[job.claim() for job in jobs],
            progress=[encode_progress(one, index) for index, one in enumerate(reported) if one is not None],
        )
        try:
            response = await connection.call(
                connection.stub.Release, request, timeout_seconds=timeout_seconds()
            )
        except PulseError as error:
            return _warn_unreleased(jobs, error.message)
        locked = {claim.job_id for claim in response.locked}
        jobs = [job for job in jobs if job.job_id in locked]
        if not jobs:
            return None
        if time.monotonic() >= began + timeout_seconds():
            return _warn_unreleased(jobs, "another session of the database has locked their rows.")
        await asyncio.sleep(tuning.RELEASE_AGAIN_SECONDS)


def _warn_unreleased(jobs: Sequence[HeldJob], reason: str) -> None:
    logger.warning(
        "%d jobs could not be released, they run again once their leases end: %s", len(jobs), reason
    )
