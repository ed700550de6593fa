"""The verbs that store jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulse import payload as payloads
from pulse import tuning
from pulse.blocking import Blocking
from pulse.calling import Caller
from pulse.errors import PartialFailure, PulseError
from pulse.models import JobHandle
from pulse.submitting import Submission, chunks, make_submission
from pulse.tracing import in_enqueue_span

if TYPE_CHECKING:
    from pulse.client import Pulse


class Enqueuing:
    """What a `Pulse` can do to store jobs."""

    _caller: Caller

    async def enqueue(
        self,
        topic: str,
        args: object = None,
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        key: str | None = None,
        metadata: Mapping[str, str] | None = None,
        job_id: str | None = None,
        timeout: timedelta | None = None,
    ) -> JobHandle:
        """Store a job and return its handle once it is safe in the database.

        Calls that run at the same time share a batch. When an answer is lost the same job is sent again
        until `timeout`; it is stored once. With `key`, a later enqueue on the topic with the same key and
        arguments answers with this job (`.duplicate`); with other arguments it raises AlreadyExists.
        """
        submission = make_submission(
            topic,
            payloads.encode(args),
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            key=key,
            metadata=metadata,
            job_id=job_id,
        )
        sending = self._caller.session().submitter.submit(submission, self._caller.seconds(timeout))
        return await in_enqueue_span(topic, [submission], sending)

    async def enqueue_many(
        self,
        topic: str,
        items: Iterable[object],
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> list[JobHandle]:
        """Store a job for each item, in batches, and return their handles in the same order.

        The items share the options. `timeout` bounds each batch. If the server refuses some, the others
        are stored, and PartialFailure tells which is which.
        """
        submissions = [
            make_submission(
                topic,
                payloads.encode(item),
                priority=priority,
                delay=delay,
                run_at=run_at,
                max_attempts=max_attempts,
                metadata=metadata,
            )
            for item in items
        ]
        sending = self._submit_all(submissions, self._caller.seconds(timeout))
        return await in_enqueue_span(topic, submissions, sending)

    async def _submit_all(self, submissions: list[Submission], timeout_seconds: float) -> list[JobHandle]:
        submitter = self._caller.session().submitter
        outcomes: list[JobHandle | PulseError] = []
        bounds = chunks(submissions)
        step = tuning.ENQUEUES_IN_FLIGHT
        for first in range(0, len(bounds), step):
            batches = [submissions[begin:end] for begin, end in bounds[first : first + step]]
            for settled in await asyncio.gather(
                *(submitter.submit_batch(batch, timeout_seconds) for batch in batches)
            ):
                outcomes.extend(settled)
        errors = {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, PulseError)}
        handles = [outcome if isinstance(outcome, JobHandle) else None for outcome in outcomes]
        if errors:
            raise PartialFailure(errors, handles)
        return [handle for handle in handles if handle is not None]


class SyncEnqueuing:
    """What a `SyncPulse` can do to store jobs."""

    _pulse: Pulse
    _blocking: Blocking

    def enqueue(
        self,
        topic: str,
        args: object = None,
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        key: str | None = None,
        metadata: Mapping[str, str] | None = None,
        job_id: str | None = None,
        timeout: timedelta | None = None,
    ) -> JobHandle:
        """Store a job and return its handle once it is safe in the database. See `Pulse.enqueue`."""
        return self._blocking.call(
            self._pulse.enqueue,
            topic,
            args,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            key=key,
            metadata=metadata,
            job_id=job_id,
            timeout=timeout,
        )

    def enqueue_many(
        self,
        topic: str,
        items: Iterable[object],
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> list[JobHandle]:
        """Store a job for each item, in batches, and return their handles. See `Pulse.enqueue_many`."""
        return self._blocking.call(
            self._pulse.enqueue_many,
            topic,
            list(items),  # a generator of the caller's has to run in the caller's thread
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            metadata=metadata,
            timeout=timeout,
        )
