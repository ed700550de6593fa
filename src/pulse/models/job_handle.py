"""The result of an enqueue: a stored job, how to wait for it, and the errors of jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

import msgspec

from pulse.errors import ClientClosed, NotFound, PulseError
from pulse.models.jobs import Attempt, JobInfo

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", covariant=True, default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R", covariant=True)


class Source(Protocol):
    """The client that a handle came from, and how it decodes the result."""

    def wait(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, JobInfo]: ...

    def result(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, Any]: ...


# A struct and not a dataclass: enqueue_many makes thousands, and a frozen dataclass takes ten times as long.
class JobHandle(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A stored job. `R` is what its handler returns."""

    # On the class, with a subclass for each client: a field would be encoded, compared and stored
    # for each job.
    _source: ClassVar[Source | None] = None

    id: str
    topic: str
    duplicate: bool = False
    """True if the job existed before: the same key or `job_id` was used earlier, or it holds the unique key.

    A repeat that the SDK sent after a lost answer is not a duplicate.
    """
    replaced: bool = False
    """True for a duplicate that took the arguments and options of this enqueue."""
    submitted_at: datetime | None = None
    """When the job was stored, by the database's clock; of a duplicate, when that job was.

    Jobs that were stored together share the moment of the first: `JobInfo.submitted_at` may be some
    milliseconds later. None for a handle that no enqueue returned, and for jobs of workflows and of your own
    transactions.
    """

    def result(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, R]:
        """Wait until the job has completed, and return what its handler returned.

        Raises JobFailed if it became a dead letter, JobCanceled, ResultGone if it is not stored any more, and
        ResultTimeout. Without `timeout` it waits for as long as the job takes. In a `def` handler it blocks.
        """
        return source_of(self).result(self, timeout)

    def wait(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, JobInfo]:
        """Wait until the job has finished, whatever the outcome, and return it without its payload.

        Raises ResultGone if it is not stored any more, and ResultTimeout. In a `def` handler it blocks.
        """
        return source_of(self).wait(self, timeout)

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if isinstance(other, JobHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(_fields(self))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return JobHandle, (*_fields(self), self.submitted_at)


def source_of(handle: JobHandle[Any]) -> Source:
    """Return the client of the handle. Raises ClientClosed if it has none."""
    if handle._source is None:
        raise ClientClosed(
            f"The handle of job {handle.id} has no client, since it was made by hand or pickled: "
            "use p.handle(job_id)."
        )
    return handle._source


def handles_of(source: object, base: type[Any] = JobHandle) -> type[Any]:
    """Return the class of the handles that wait by this source."""
    named = {"_source": source, "__module__": base.__module__, "__doc__": base.__doc__}
    meta: Any = type(base)
    made: type[Any] = meta(base.__name__, (base,), named, frozen=True, gc=False)
    return made


def _fields(handle: JobHandle[Any]) -> tuple[str, str, bool, bool]:
    """Return the fields that are compared."""
    return handle.id, handle.topic, handle.duplicate, handle.replaced


class PartialFailure(PulseError):
    """Some jobs of an `enqueue_many` were refused; the rest is stored.

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
        self.error_class = job.error_class
        """The class of the error, such as `shop.errors.PaymentDeclined`. See `JobInfo.error_class`."""
        self.traceback = job.traceback
        """The traceback of the error as Python prints it, with its causes. See `JobInfo.traceback`."""
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
    """The job has not finished in time. The job continues: wait for it again."""

    code = "DEADLINE_EXCEEDED"


class ResultGone(NotFound):
    """The job that was waited for is not stored: it was deleted, or its transaction is not committed."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"There is no job {job_id}. A job that is enqueued in a transaction is stored by the commit: "
            "wait for it after that. Finished jobs are deleted after the retention of their topic: wait "
            "sooner, or keep the topic for longer."
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.job_id,)
