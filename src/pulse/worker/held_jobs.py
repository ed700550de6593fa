"""A job that this worker holds, from its delivery until the server has taken its result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulse import tuning
from pulse.handlers.context import context_for
from pulse.handlers.handler import Handler
from pulse.outcomes import Outcome
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from pulse.tracing.spans import RunSpan


@dataclass(slots=True)
class LeaseTerms:
    """How long a lease lasts and how often to beat. The server's welcome sets both."""

    lease_seconds: float = tuning.DEFAULT_LEASE_SECONDS
    heartbeat_seconds: float = tuning.DEFAULT_HEARTBEAT_SECONDS
    # On the `lease_clock`. pulsed said that its database does not answer: it reaps nothing meanwhile, nor for
    # a whole lease after that.
    spared_until: float = 0.0

    def is_over(self, job: HeldJob, now: float) -> bool:
        """Whether the job may be somebody else's by now, and the worker has to give it up."""
        return now >= job.lease_end and now >= self.spared_until and now >= job.spared_until


class HeldJob:
    """One claim and where it stands. Made for every job, hence a plain class with slots.

    Its moments are on the `lease_clock`. The heartbeat thread sets `lease_end`, `spared_until` and
    `is_counted`; all else belongs to the event loop.
    """

    __slots__ = (
        "assignment",
        "attempt",
        "begun_at",
        "confirm",
        "context",
        "handler",
        "has_begun",
        "is_counted",
        "is_given_back",
        "job_id",
        "lease_end",
        "outcome",
        "return_by",
        "span",
        "spared_until",
        "start_by",
        "stop_reason",
        "task",
    )

    def __init__(
        self,
        job_id: str,
        assignment: pb.JobAssignment,
        handler: Handler,
        lease_end: float,
        start_by: float,
        return_by: float,
    ) -> None:
        self.assignment = assignment
        self.job_id = job_id
        self.attempt = assignment.attempt
        self.handler = handler
        self.context = context_for(assignment)
        self.lease_end = lease_end
        # pulsed could not extend this lease, and the job is still ours: no server takes it until then.
        self.spared_until = 0.0
        # Whether the server has to be asked before the handler starts, and from when on it has to be.
        self.confirm = assignment.confirm
        self.start_by = start_by
        # When it is released if it has not started.
        self.return_by = return_by
        self.has_begun = False
        # Of a handler that waits for something, on the `lease_clock`.
        self.begun_at = 0.0
        # Whether the server has had a beat, from which on the attempt counts.
        self.is_counted = False
        # Set: the handler waits for something, and this task is its own.
        self.task: asyncio.Task[None] | None = None
        self.outcome: Outcome | None = None
        # Set: this run is traced.
        self.span: RunSpan | None = None
        # Set: this claim is not ours any more, so nothing is reported for it.
        self.stop_reason = ""
        # Set: the worker stops, the handler was cancelled, and the claim waits to be released.
        self.is_given_back = False

    def claim(self) -> pb.Claim:
        return pb.Claim(job_id=self.job_id, attempt=self.attempt)
