"""The verbs that store jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from pulse import payload as payloads
from pulse.client.bulk import Bulk
from pulse.client.caller import Caller
from pulse.client.submissions import make_submission
from pulse.errors import InvalidArgument, PartialFailure, PulseError
from pulse.job_handle import JobHandle
from pulse.tracing.optional import in_enqueue_span


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

        A higher `priority` is run first, strictly, over all topics that a worker serves.

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
        return await in_enqueue_span(submission.request, 1, sending)

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
        # All of them before any is sent: one that cannot be written leaves nothing behind.
        if not isinstance(items, Iterable):
            raise InvalidArgument(f"items has to be a list of what the jobs carry, but {items!r} was given.")
        encoded = [payloads.encode(item) for item in items]
        template = make_submission(
            topic,
            b"",
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            metadata=metadata,
        )
        bulk = Bulk(template, encoded)
        sending = self._submit_all(bulk, self._caller.seconds(timeout))
        return await in_enqueue_span(template.request, len(encoded), sending)

    async def _submit_all(self, bulk: Bulk, timeout_seconds: float) -> list[JobHandle]:
        outcomes = await bulk.submit(self._caller.session().submitter, timeout_seconds)
        handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        if len(handles) < len(outcomes):
            raise PartialFailure(
                {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, PulseError)},
                [outcome if isinstance(outcome, JobHandle) else None for outcome in outcomes],
            )
        return handles
