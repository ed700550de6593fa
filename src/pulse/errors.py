"""All errors of pulse, as one tree.

PulseError
├── InvalidArgument        a value that cannot be used; the sentence names it
│   ├── InvalidHandler     a function that cannot serve as a handler
│   └── InvalidMiddleware  a function that cannot serve as middleware, or that lost an outcome
├── NotFound               no such job
│   └── ResultGone         the job that was waited for is not stored any more
├── AlreadyExists          the same id or key was used with another payload
├── InvalidTransition      the job's status does not allow this
├── ClaimLost              a handler cannot complete its job any more: its transaction rolls back
│   └── AlreadyCompleted   it has, in an earlier transaction that was committed
├── Unauthenticated        credentials are missing or wrong
├── PermissionDenied       the credentials do not allow this
├── ResourceExhausted      too large, or too much at once
├── Unavailable            pulsed, or its database, cannot be reached
│   └── DeadlineExceeded   no answer in time: it may or may not have happened
├── InternalError          the server failed; see its log
├── PartialFailure         some jobs of an enqueue_many were refused
├── JobFailed              the job that was waited for is a dead letter
├── JobCanceled            it was canceled
├── ResultTimeout          it has not finished in time
├── ResourceFailed         a resource of a worker could not be opened or closed
├── SignalTimeout          a signal that a job waited for did not come in time
├── SlotsLost              a worker stopped: too many handlers did not end
└── ClientClosed           the client was closed, or is used where it cannot work

Errors that carry jobs are in `pulse.jobs.handles`.

`Retry`, `Snooze`, `Discard` and `Cancelled`, which handlers raise, are not errors of pulse and live in
`pulse.outcomes`: `except PulseError` around an enqueue must not catch them.
"""

from __future__ import annotations

from typing import ClassVar


class PulseError(Exception):
    """The root of all errors of pulse."""

    code: ClassVar[str] = "UNKNOWN"
    """The name of the gRPC status that this error stands for."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(PulseError):
    """A value cannot be used; the message names it and the expected value."""

    code = "INVALID_ARGUMENT"


class InvalidHandler(InvalidArgument):
    """A function cannot serve as a handler; the message names the fault in its signature."""


class InvalidMiddleware(InvalidArgument):
    """A function cannot serve as middleware, or returned without the outcome of the inner call."""


class NotFound(PulseError):
    """There is no such job, schedule or workflow."""

    code = "NOT_FOUND"


class AlreadyExists(PulseError):
    """The same id or idempotency key was used before with another payload, or for another workflow."""

    code = "ALREADY_EXISTS"


class InvalidTransition(PulseError):
    """The status of the job does not allow this."""

    code = "FAILED_PRECONDITION"


class ClaimLost(PulseError):
    """`ctx.complete` was refused: the job was canceled, or its lease was lost. Let the transaction roll back.

    It also stands for a job that another run has completed.
    """

    code = "FAILED_PRECONDITION"


class AlreadyCompleted(ClaimLost):
    """`ctx.complete` was refused: this run has completed the job, in an earlier transaction.

    It was committed, although its answer may have been lost. Let the later transaction roll back, and return.
    """


class Unauthenticated(PulseError):
    """Credentials are missing or wrong."""

    code = "UNAUTHENTICATED"


class PermissionDenied(PulseError):
    """The credentials are known but do not allow this."""

    code = "PERMISSION_DENIED"


class ResourceExhausted(PulseError):
    """The request is too large, or the server is overloaded."""

    code = "RESOURCE_EXHAUSTED"


class Unavailable(PulseError):
    """pulsed, or its database, cannot be reached. A later try may succeed."""

    code = "UNAVAILABLE"


class DeadlineExceeded(Unavailable):
    """No answer came in time. The request may or may not have taken effect."""

    code = "DEADLINE_EXCEEDED"


class InternalError(PulseError):
    """The server failed unexpectedly. See its log."""

    code = "INTERNAL"


class SignalTimeout(PulseError):
    """A signal did not come in the time that `ctx.wait_for` gave it. Later attempts raise it at once."""


class SlotsLost(PulseError):
    """A worker stopped because too many handlers did not end, although they were interrupted."""

    code = "ABORTED"


class ClientClosed(PulseError):
    """The client was closed, or is used where it cannot work."""

    code = "CANCELLED"


class ResourceFailed(PulseError):
    """A resource of a worker could not be opened, or not be closed."""

    code = "FAILED_PRECONDITION"


_BY_CODE: dict[int, type[PulseError]] = {
    3: InvalidArgument,
    4: DeadlineExceeded,
    5: NotFound,
    6: AlreadyExists,
    7: PermissionDenied,
    8: ResourceExhausted,
    9: InvalidTransition,
    10: Unavailable,  # ABORTED: lost a race, worth another try
    11: InvalidArgument,  # OUT_OF_RANGE
    13: InternalError,
    14: Unavailable,
    15: InternalError,  # DATA_LOSS
    16: Unauthenticated,
}


def error_for_code(code: int, message: str) -> PulseError:
    """Return the error for a gRPC status code, with the server's message."""
    return _BY_CODE.get(code, PulseError)(message)
