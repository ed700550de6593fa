"""Worker ids belong to the user that calls. ADR-0048

On a server with users the fence of a job is not the name that a worker gives itself but user and name
together: `locked_by` is user:name. Another user that sends the same name is another worker, so it can neither
report, beat or release jobs of the first nor take its stream over. Nothing is looked up for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument

# Set by the doorkeeper in the task that serves the call. None: the server is open.
_user: ContextVar[str | None] = ContextVar("pulse_calling_user", default=None)
_SEPARATOR = ":"  # no user has one in its name: credentials could not carry it

Behaviour = Callable[[Any, Any, Any], Awaitable[Any]]


def note_caller(user: str) -> None:
    """The rest of this task, and the tasks it starts, serve this user."""
    _user.set(user)


def calling_user() -> str | None:
    """The user who calls; None on an open server."""
    return _user.get()


def own_worker_id(worker_id: str) -> str:
    """The worker id as it is stored: with the user it belongs to, if there are users."""
    user = _user.get()
    if user is None or not worker_id:
        return worker_id  # the handler says what is missing
    own = f"{user}{_SEPARATOR}{worker_id}"
    if len(own) > limits.MAX_WORKER_ID_LENGTH:
        raise InvalidArgument(
            "worker_id",
            f"is longer than {limits.MAX_WORKER_ID_LENGTH} characters together with the name of its user "
            f"({len(own)}). Give the worker a shorter one.",
        )
    return own


def is_own(stored_worker_id: str) -> bool:
    """Whether the worker id, as it is stored, belongs to the user who calls."""
    user = _user.get()
    return user is None or stored_worker_id.startswith(f"{user}{_SEPARATOR}")


def binds_worker_id(behaviour: Behaviour) -> Behaviour:
    """Have the method see the worker id of its request as it is stored."""

    @wraps(behaviour)
    async def call(self: Any, request: Any, context: Any) -> Any:
        if _user.get() is not None:
            request.worker_id = own_worker_id(request.worker_id)
        return await behaviour(self, request, context)

    call.binds_worker_id = True  # type: ignore[attr-defined]
    return call
