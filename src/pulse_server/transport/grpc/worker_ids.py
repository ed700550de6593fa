"""Worker ids belong to the user that calls. ADR-0048

On a server with users `locked_by`, which fences a job, is user:name. Another user that sends the same name is
another worker: it can neither report, extend or release jobs of the first nor replace its stream. This needs
no lookup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument

# Set by AuthenticationInterceptor in the task that serves the call. None: a server without users.
_user: ContextVar[str | None] = ContextVar("pulse_calling_user", default=None)
_SEPARATOR = ":"  # names of users cannot contain it, as in HTTP Basic

Behavior = Callable[[Any, Any, Any], Awaitable[Any]]


def set_calling_user(user: str) -> None:
    """Set the user that this task, and the tasks it starts, serve."""
    _user.set(user)


def calling_user() -> str | None:
    """Return the calling user; None on a server without users."""
    return _user.get()


def own_worker_id(worker_id: str) -> str:
    """Return the worker id as it is stored: with the calling user, if there are users."""
    user = _user.get()
    if user is None or not worker_id:
        return worker_id  # the handler refuses it
    own = f"{user}{_SEPARATOR}{worker_id}"
    if len(own) > bounds.MAX_WORKER_ID_LENGTH:
        raise InvalidArgument(
            "worker_id",
            f"is longer than {bounds.MAX_WORKER_ID_LENGTH} characters together with the name of its user "
            f"({len(own)}). Give the worker a shorter one.",
        )
    return own


def is_own(stored_worker_id: str) -> bool:
    """Whether the stored worker id belongs to the calling user."""
    user = _user.get()
    return user is None or stored_worker_id.startswith(f"{user}{_SEPARATOR}")


def binds_worker_id(behavior: Behavior) -> Behavior:
    """Replace the worker id of the request by the stored form before the method runs."""

    @wraps(behavior)
    async def call(self: Any, request: Any, context: Any) -> Any:
        if _user.get() is not None:
            request.worker_id = own_worker_id(request.worker_id)
        return await behavior(self, request, context)

    call.binds_worker_id = True  # type: ignore[attr-defined]
    return call
