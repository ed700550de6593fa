"""The errors, one class per thing that a caller can act on.

PulseError
├── InvalidArgument      the request itself is wrong; sending it again changes nothing
├── JobNotFound          no job has this id
├── ScheduleNotFound     no schedule has this id or name
├── WorkflowNotFound     no workflow has this id
├── WorkerNotFound       no worker of this name is connected
├── AlreadyExists        the id or the idempotency key belongs to a job with other content
├── ScheduleExists       the name belongs to a schedule with another definition
├── WorkflowExists       the id belongs to another workflow, or unique keys are taken
├── InvalidTransition    the job's state, or another claim, forbids the request
├── Unauthenticated      the credentials are missing or wrong
├── PermissionDenied     the user is known, but its role does not allow this
├── TooManyLogins        too many wrong passwords came from there; wait
├── ResourceExhausted    the database, or an answer, has no room left
├── JobLocked            another session of the database has locked the job's row; try again
├── LimitsLocked         another session has locked the limits of a topic; try again
├── LimitsPending        limits are accepted, and another transaction has to end before they are in force
└── Unavailable          the database or the server has no time for this now; try again
"""

from __future__ import annotations


class PulseError(Exception):
    """Root of the errors that callers receive. Its text is a sentence for the caller, never SQL."""


class InvalidArgument(PulseError):
    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"{field} {problem}")


class JobNotFound(PulseError):
    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"There is no job {job_id}.")


class AlreadyExists(PulseError):
    def __init__(self, named_by: str, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"{named_by} already belongs to job {job_id}, which has another topic or payload. "
            "Use a new one for new work."
        )


class ScheduleNotFound(PulseError):
    def __init__(self, named: str) -> None:
        super().__init__(f"There is no schedule {named}. One that ran once is removed after its fire.")


class ScheduleExists(PulseError):
    def __init__(self, name: str, schedule_id: str) -> None:
        super().__init__(
            f"The name {name!r} belongs to schedule {schedule_id}, which is defined otherwise. "
            "Update that one, or declare yours with replace."
        )


class WorkflowNotFound(PulseError):
    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"There is no workflow {workflow_id}. One that ended long ago has been deleted.")


class WorkerNotFound(PulseError):
    def __init__(self, worker_id: str) -> None:
        super().__init__(f"No worker {worker_id!r} is connected.")


class WorkflowExists(PulseError):
    pass


class InvalidTransition(PulseError):
    def __init__(self, job_id: str, problem: str) -> None:
        self.job_id = job_id
        super().__init__(problem)


class Unauthenticated(PulseError):
    pass


class PermissionDenied(PulseError):
    pass


class TooManyLogins(PulseError):
    def __init__(self, wait_seconds: int) -> None:
        self.wait_seconds = wait_seconds
        super().__init__(
            f"Too many logins from this address have failed. Try again in {wait_seconds} "
            f"{'second' if wait_seconds == 1 else 'seconds'}."
        )


class ResourceExhausted(PulseError):
    pass


class Unavailable(PulseError):
    pass


class LimitsLocked(Unavailable):
    def __init__(self) -> None:
        super().__init__(
            "Another session of the database has the limits of the topic locked. Try again in a moment."
        )


class LimitsPending(Unavailable):
    def __init__(self, topic: str, pending: str) -> None:
        super().__init__(f"The limits of {topic!r} are accepted, and {pending}. They are tried again.")


class JobLocked(Unavailable):
    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"Job {job_id} is locked by another session of the database. Try again.")
