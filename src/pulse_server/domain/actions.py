"""The action under way: the change that a caller requested, as the audit records it.

The change log sets it around the handler of a change. A plain submit, claim, report or heartbeat has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

# The methods whose effect on jobs can be undone.
UNDOABLE = frozenset({"CancelJob", "CancelJobs", "RetryJob", "RetryJobs", "PrioritizeJob", "PrioritizeJobs"})
# The most ids that an entry of the audit keeps.
MOST_IDS = 64


@dataclass(slots=True)
class Action:
    """All batches of a bulk action have the same id, and are one entry."""

    id: str
    method: str
    user: str
    """Empty on a server without users."""
    role: str
    address: str
    """Of the caller, as Caller.address."""
    reason: str = ""
    topics: tuple[str, ...] = ()
    """Topics that the request names, for itself or in a filter."""
    ids: tuple[str, ...] = ()
    """Jobs, schedules and workflows that the request names."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The filter and the short fields of the request."""
    count: int = 0
    """Changes so far, those of earlier batches included. 0: nothing has changed."""

    @property
    def peer(self) -> str:
        """The address of the connection, without the visitor that the caller names."""
        return self.address.rpartition(" via ")[2]


_current: ContextVar[Action | None] = ContextVar("pulse_action", default=None)


def current() -> Action | None:
    """Return the action under way; None if the call is not a change."""
    return _current.get()


def undo_id() -> str | None:
    """Return the id of the action under way if it can be undone: the jobs keep it with their old values."""
    action = _current.get()
    return action.id if action is not None and action.method in UNDOABLE else None


@contextmanager
def under_way(action: Action | None) -> Iterator[None]:
    """Make this the action under way in the current task, and in the tasks that it starts."""
    token = _current.set(action)
    try:
        yield
    finally:
        _current.reset(token)
