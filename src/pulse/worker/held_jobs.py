"""A job that this worker holds, from delivery until the server has its result."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pulse import tuning
from pulse.handlers.context import context_for
from pulse.handlers.handler import Handler
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.steps import NO_SIGNALS, GivenSignals
from pulse.jobs.models import Reported
from pulse.outcomes import Cancelled, Outcome
from pulse.supervision.supervised import stack_of_task, stack_of_thread
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from pulse.tracing.spans import RunSpan


@dataclass(slots=True)
class LeaseTerms:
    """The length of a lease, the heartbeat interval, the bound of results. The server's welcome sets them."""

    lease_seconds: float = tuning.DEFAULT_LEASE_SECONDS
    heartbeat_seconds: float = tuning.DEFAULT_HEARTBEAT_SECONDS
    # By the `lease_clock`. Set when pulsed reports that its database does not answer: it reaps
    # nothing until a whole lease after the outage.
    spared_until: float = 0.0
    # The bound of a result. 0: this server stores no results.
    max_result_bytes: int = 0
    # Topics whose results this worker dropped, because the server stores no results.
    dropped_results: set[str] = field(default_factory=set)

    def is_over(self, job: HeldJob, now: float) -> bool:
        """True if another worker may hold the job by now, so that this one has to give it up."""
        return now >= job.lease_end and now >= self.spared_until and now >= job.spared_until


class OutsideCall(Protocol):
    """A handler that runs outside of the event loop: in a thread or a process."""

    @property
    def thread_id(self) -> int | None: ...

    def interrupt(self, error: type[Cancelled]) -> None:
        """Raise the error in the handler."""

    def kill(self) -> bool:
        """End the handler, whatever it does. Returns False if that is not possible."""


@dataclass(slots=True)
class TimeLimit:
    """When a handler has to end. Seconds are by the `lease_clock`."""

    seconds: float
    due: float
    """When the next step is due: it is interrupted, then killed if possible, then given up."""
    task: asyncio.Task[Any] | None
    """The task that runs the handler."""
    is_timed_out: bool = False
    is_interrupted: bool = False
    is_killed: bool = False
    is_lost: bool = False
    own: contextvars.Context | None = None
    """A copy of the contextvars that the handler started with. None unless the attempt has a time limit."""


class HeldJob:
    """One claim and its state. There is one for every job, hence a plain class with slots.

    Times are by the `lease_clock`. The heartbeat thread sets `lease_end`, `spared_until`, `is_counted` and
    `sent_progress`; the event loop sets everything else.
    """

    __slots__ = (
        "assignment",
        "attempt",
        "begun_at",
        "call",
        "confirm",
        "context",
        "handler",
        "has_begun",
        "is_counted",
        "is_interrupted",
        "job_id",
        "lease_end",
        "limit",
        "outcome",
        "release_by",
        "run",
        "sent_progress",
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
        release_by: float,
        steps: StepCalls | GivenSignals = NO_SIGNALS,
    ) -> None:
        self.assignment = assignment
        self.job_id = job_id
        self.attempt = assignment.attempt
        self.run = assignment.run
        self.handler = handler
        self.context = context_for(assignment, handler.state, handler.hold, steps, handler.context_type)
        self.lease_end = lease_end
        # pulsed could not extend this lease, but keeps the claim: no server reaps it until then.
        self.spared_until = 0.0
        # Whether to confirm the claim before the start, and the time from which that is required.
        self.confirm = assignment.confirm
        self.start_by = start_by
        # A job that has not started by then is released.
        self.release_by = release_by
        self.has_begun = False
        # The start of a handler that waits for something.
        self.begun_at = 0.0
        # Whether the server has a heartbeat of the job: from then on the attempt counts.
        self.is_counted = False
        # The last progress report that the server has.
        self.sent_progress: Reported | None = None
        # Set while the handler waits for something: the task that runs it alone.
        self.task: asyncio.Task[None] | None = None
        # Set while the handler runs in a thread or a process, also if it outlives its task.
        self.call: OutsideCall | None = None
        # Set once the handler has a time limit, or is canceled.
        self.limit: TimeLimit | None = None
        self.outcome: Outcome | None = None
        # Set if the run is traced.
        self.span: RunSpan | None = None
        # Set if the claim is lost: nothing is reported for it.
        self.stop_reason = ""
        # Set if the handler was canceled because the worker stops: the claim waits to be released.
        self.is_interrupted = False

    def stack(self) -> str:
        """Return the stack of the running handler as text. Empty if unknown."""
        if self.call is not None and self.call.thread_id is not None:
            return stack_of_thread(self.call.thread_id)
        return stack_of_task(self.task) if self.task is not None else ""

    def claim(self) -> pb.Claim:
        return pb.Claim(job_id=self.job_id, attempt=self.attempt, run=self.run)


class Held:
    """The jobs of a worker, by id, and the jobs whose handlers have not started."""

    def __init__(self) -> None:
        self.jobs: dict[str, HeldJob] = {}
        self.unstarted: set[HeldJob] = set()

    def settled(self, jobs: Iterable[HeldJob]) -> None:
        """Remove jobs whose results were accepted or refused, or whose claims were released."""
        held = self.jobs
        for job in jobs:
            if held.get(job.job_id) is job:
                del held[job.job_id]

    def not_begun(self) -> list[HeldJob]:
        """Return the jobs that have not started, including jobs that wait to be released."""
        return [job for job in self.jobs.values() if not (job.has_begun or job.stop_reason)]

    def interrupted(self) -> list[HeldJob]:
        """Return the jobs whose handler was canceled because the worker stops."""
        return [job for job in self.jobs.values() if job.is_interrupted]
