"""The verbs for verdicts: hooks in workers, and a loop for jobs that end without a handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pulse.errors import InvalidArgument
from pulse.handlers.registry import Registry
from pulse.handlers.signatures import takes
from pulse.jobs.caller import seconds_of
from pulse.jobs.models import JobStatus
from pulse.jobs.verbs import ExportVerbs
from pulse.models.verdicts import VerdictHook, verdict_without_report
from pulse.worker.verdicts import call_hooks

H = TypeVar("H", bound=Callable[..., Any])

_FOLLOWED = (JobStatus.DEAD_LETTERED, JobStatus.CANCELED)


class VerdictVerbs(ExportVerbs):
    """The verbs of a `Pulse` about what became of jobs that did not succeed."""

    _registry: Registry
    _verdict_hooks: list[VerdictHook]

    def on_verdict(self, function: H, /) -> H:
        """Call this function with the `Verdict` on each attempt that did not succeed. For use as a decorator.

        A job is retried, has failed for good, or is canceled. `run()` calls it in the worker that ran the
        attempt, at most once, after the server has stored the verdict: not if the worker is killed before. An
        error of the function is logged, and changes nothing. A plain function runs in a thread. Snoozes,
        sleeps and lost leases are not passed on here: see `follow_verdicts`.
        """
        if not callable(function) or not takes(function, None):
            raise InvalidArgument(f"p.on_verdict takes a function of (verdict), but {function!r} was given.")
        self._verdict_hooks.append(function)
        return function

    async def follow_verdicts(
        self,
        *,
        since: datetime,
        topic: str | None = None,
        interval: timedelta = timedelta(seconds=5),
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[datetime, None]:
        """Call the `on_verdict` functions with jobs that ended without a handler's report, until closed.

        These are dead letters whose last lease was lost or that the server ended at their time limit, and
        jobs that were canceled while they waited: by an operator, by `start_within`, or in their workflow.
        A job that was canceled while it ran is left to its worker: if that is killed before its handler has
        stopped, the job is not passed on. Yields a moment after each look: jobs that ended before it were
        passed on. Begin there the next time, and each job is passed on at least once. Each look reads all
        dead letters and canceled jobs that are kept. One process of an application runs this, with a user
        that may export jobs. `timeout` bounds each wait for a server.
        """
        seconds = seconds_of("interval", interval)
        while True:
            until = since
            async for page in self.export_jobs(since=since, topic=topic, statuses=_FOLLOWED, timeout=timeout):
                until = page.before or until
                for job in page:
                    if (verdict := verdict_without_report(job)) is not None:
                        await call_hooks(self._verdict_hooks, verdict)
            since = until
            yield since
            await asyncio.sleep(seconds)
