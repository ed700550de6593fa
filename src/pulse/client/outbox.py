"""Submits jobs that an outbox has stored, each under its own id: a repeat stores nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pulse.client.client import Pulse
from pulse.client.options import ItemOptions
from pulse.client.submissions import Outcome, Submission, make_submission
from pulse.models.job_handle import JobHandle


def stored_job(topic: str, payload: bytes, options: ItemOptions, default_attempts: int | None) -> Submission:
    """Return the request for a job, which has its `job_id`. Raises InvalidArgument.

    `default_attempts` is the number of the producer's code for all jobs of the topic.
    """
    handles: type[JobHandle[Any]] = JobHandle
    return make_submission(topic, payload, handles, options, default_attempts)


async def submit_all(client: Pulse, jobs: Sequence[Submission], timeout: timedelta) -> list[Outcome]:
    """Submit the jobs with one call. Returns a handle or the error for each. Unique jobs have to come last.

    Raises a PulseError if the call as a whole fails; then any of the jobs may be stored.
    """
    return await client._caller.session().submitter.submit_all(jobs, timeout.total_seconds())
