"""The end of a worker: its handlers finish, and their jobs are reported or released.

A job that cannot be released runs again once its lease ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from pulse import failpoints, tuning
from pulse.errors import PulseError
from pulse.handlers.context import is_lost, records_of
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.worker.handler_errors import failed
from pulse.worker.held_jobs import Held, HeldJob, LeaseTerms
from pulse.worker.releases import Releases
from pulse.worker.reporter import Reporter
from pulse.worker.results import encode_progress, in_batches, unsent_progress
from pulse.worker.runners import Runners

logger = logging.getLogger("pulse.worker")


class Draining:
    """Drains a worker. `hurry_requested` ends the wait for handlers."""

    def __init__(
        self,
        connection: Connection,
        worker_id: str,
        held: Held,
        runners: Runners,
        releases: Releases,
        reporter: Reporter,
        terms: LeaseTerms,
        drain_seconds: float,
        hurry_requested: asyncio.Event,
    ) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._held = held
        self._runners = runners
        self._releases = releases
        self._reporter = reporter
        self._terms = terms
        self._drain_seconds = drain_seconds
        self._hurry_requested = hurry_requested
        self.has_given_up = False
        """True if handlers did not stop: they and their threads or processes still run."""

    async def run(self, intake_finished: Awaitable[None]) -> None:
        """Start no further handler, and return once every job is reported, released or given up."""
        # Code in the event loop has ended it: asyncio.run() cancels all tasks while it passes this error on.
        broken_by = sys.exc_info()[1]
        deadline = time.monotonic() + self._drain_seconds
        self._runners.stop_starting()
        await intake_finished
        self._releases.take(list(self._held.unstarted))
        # Including the jobs that the heartbeat thread was about to release: it ends with the worker.
        await self._release(self._held.not_begun())
        await self._finish_handlers(deadline)
        if isinstance(broken_by, SystemExit | RuntimeError):
            self._fail_interrupted(broken_by)
        # Without costing an attempt: that a worker stops is not a failure of the job.
        await self._release(self._held.interrupted())
        await self._flush_reports()

    async def _finish_handlers(self, deadline: float) -> None:
        if tasks := self._runners.running_tasks():
            handlers = "1 handler has" if len(tasks) == 1 else f"{len(tasks)} handlers have"
            logger.info("Stopping: %s %.0f s to finish.", handlers, self._drain_seconds)
            wait_seconds = max(0.0, deadline - time.monotonic())
            await wait_unless(self._hurry_requested, asyncio.wait(tasks), wait_seconds)
        if tasks := self._runners.running_tasks():
            self._runners.cancel_running()
            await asyncio.wait(tasks, timeout=tuning.CANCEL_GRACE_SECONDS)
        if (tasks := self._runners.running_tasks()) and self._runners.kill_running():
            await asyncio.wait(tasks, timeout=tuning.CANCEL_GRACE_SECONDS)
        if stubborn := self._runners.running_tasks():
            self.has_given_up = True
            what = (
                "1 handler did not stop; its job runs"
                if len(stubborn) == 1
                else (f"{len(stubborn)} handlers did not stop; their jobs run")
            )
            logger.warning("%s again once the lease ends.", what)

    def _fail_interrupted(self, error: BaseException) -> None:
        """Fail the jobs that ran when code ended the event loop. A handler may have ended it."""
        for job in self._held.interrupted():
            if not (job.context.cancelled or is_lost(job.context)):
                with records_of(job.context):
                    job.outcome = failed(job, error)
                if job.outcome is not None:
                    job.is_interrupted = False
                    self._reporter.add(job)

    async def _flush_reports(self) -> None:
        # After a lease, a server that can be reached may have assigned the jobs to other workers.
        flushed = asyncio.ensure_future(self._reporter.flushed())
        await wait_unless(self._hurry_requested, asyncio.wait({flushed}), self._terms.lease_seconds)
        await asyncio.wait({flushed}, timeout=tuning.CANCEL_GRACE_SECONDS)
        flushed.cancel()

    async def _release(self, jobs: list[HeldJob]) -> None:
        await release_all(self._connection, self._worker_id, jobs, self._release_seconds, self._held.settled)

    def _release_seconds(self) -> float:
        is_hurried = self._hurry_requested.is_set()
        return tuning.CANCEL_GRACE_SECONDS if is_hurried else tuning.RELEASE_TIMEOUT_SECONDS


async def wait_unless(event: asyncio.Event, work: Coroutine[Any, Any, Any], timeout_seconds: float) -> None:
    """Wait for the work to end, for the timeout, or for the event."""
    waited = asyncio.ensure_future(work)
    cut_short = asyncio.ensure_future(event.wait())
    await asyncio.wait({waited, cut_short}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    waited.cancel()
    cut_short.cancel()


@failpoints.before("worker.releasing")
async def release_all(
    connection: Connection,
    worker_id: str,
    jobs: list[HeldJob],
    timeout_seconds: Callable[[], float],
    settled: Callable[[Sequence[HeldJob]], None],
) -> None:
    """Release the jobs in requests of a bounded size. Each request has the timeout.

    `settled` gets the jobs of each request, even if they could not be released.
    """
    for some in in_batches(jobs, tuning.CLAIMS_PER_RELEASE):
        await _release_or_warn(connection, worker_id, some, timeout_seconds)
        for job in some:
            job.stop_reason = "it was released"
        settled(some)


async def _release_or_warn(
    connection: Connection, worker_id: str, jobs: Sequence[HeldJob], timeout_seconds: Callable[[], float]
) -> None:
    """Release the jobs. Retry jobs with a locked row until the timeout."""
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
