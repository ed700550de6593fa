"""Errors that carry jobs: of an `enqueue_many`, and of waiting for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pulse.errors import NotFound, PulseError
from pulse.models.job_handle import JobHandle
from pulse.models.jobs import Attempt, JobInfo


class PartialFailure(PulseError):
    """Some jobs of an `enqueue_many` were refused; the others are stored.

    `errors` maps the position of each refused job to its error. `handles` holds, by position, the
    handle of each stored job and None for each refused one.
    """

    code = "ABORTED"

    def __init__(self, errors: Mapping[int, PulseError], handles: Sequence[JobHandle[Any] | None]) -> None:
        self.errors: dict[int, PulseError] = dict(errors)
        self.handles: list[JobHandle[Any] | None] = list(handles)
        position = min(self.errors)
        super().__init__(
            f"{len(self.errors)} of {len(self.handles)} jobs were refused; "
            f"the first is number {position}: {self.errors[position].message}"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.errors, self.handles)


class JobFailed(PulseError):
    """The job that was waited for is a dead letter: it failed on its last attempt, or was discarded."""

    code = "ABORTED"

    def __init__(self, job: JobInfo) -> None:
        self.job = job
        self.job_id = job.id
        self.error: str = job.last_error or ""
        """Of the last attempt, with its traceback."""
        self.attempts = job.attempts
        self.history: tuple[Attempt, ...] = job.history
        """The attempts, the last ones if there were many."""
        count = f"{job.attempts} attempt" + ("" if job.attempts == 1 else "s")
        first_line = self.error.partition("\n")[0]
        super().__init__(f"Job {job.id} failed after {count}: {first_line}")

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.job,)


class JobCanceled(PulseError):
    """The job that was waited for was canceled."""

    code = "CANCELLED"

    def __init__(self, job: JobInfo) -> None:
        self.job = job
        self.job_id = job.id
        self.reason: str = job.last_error or ""
        super().__init__(f"Job {job.id} was canceled" + (f": {self.reason}" if self.reason else "."))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.job,)


class ResultTimeout(PulseError, TimeoutError):
    """The job has not finished in time. It goes on: wait for it again."""

    code = "DEADLINE_EXCEEDED"


class ResultGone(NotFound):
    """The job that was waited for is not stored: retention or an operator has deleted it."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"There is no job {job_id}, or no longer: finished jobs are deleted after the retention of their "
            "topic. Wait for it sooner, or keep its topic for longer."
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.job_id,)
