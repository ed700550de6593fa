"""Removes the jobs of a run, and nothing else: each step names the topic of the run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pulse

_LEFT = (
    "They go with the retention of the server, or by: pulse jobs delete --topic {topic} --status COMPLETED"
)


async def clean_up(p: pulse.Pulse, identity: pulse.Identity, topic: str) -> str:
    """Cancel unfinished jobs and delete all jobs. Returns a sentence about the result."""
    if not (identity.may("CancelJobs") and identity.may("DeleteJobs")):
        return f"The role {identity.role} may not delete jobs. {_LEFT.format(topic=topic)}"
    canceled = await _total(p.cancel_matching(topic=topic, reason="the end of a load test"))
    deleted = 0
    for status in (pulse.JobStatus.COMPLETED, pulse.JobStatus.CANCELED, pulse.JobStatus.DEAD_LETTERED):
        deleted += await _total(p.delete_matching(topic=topic, status=status))
    return f"Deleted {deleted:,} jobs of {topic}, {canceled:,} of which had not finished."


async def _total(steps: AsyncIterator[int]) -> int:
    """The last of the running totals."""
    return ([0] + [total async for total in steps])[-1]
