"""The audit: the action under way, counted calls, and the entries of both."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Any

from pulse.topic_settings import ENTRIES, from_json
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.loops import Loop
from pulse_server.database.statements import Fetch, Rows, Work, statements

# ---------------------------------------------------------------- actions
# The action under way: the change that a caller requested, as the audit records it.
#
# The change log sets it around the handler of a change. A plain submit, claim, report or heartbeat has none.

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


# ---------------------------------------------------------------- counted calls
# Calls that the audit counts: one entry a minute for each user, method, peer and outcome.
#
# These are refused changes, and the submits of operators. A loop writes them: a caller that is refused a
# thousand times a second costs a few statements a minute.

WRITE_INTERVAL = timedelta(seconds=2)
ENTRY_SECONDS = 60.0
# Entries that are kept in memory. Further callers are left out: the metrics count their calls.
MOST_ENTRIES = 1000


@dataclass(slots=True)
class _Entry:
    action: Action
    code: str
    sentence: str
    until: float
    unwritten: int = 0


class CountedCalls:
    def __init__(
        self,
        write: Callable[[Action, str, str, int], Awaitable[None]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`write` adds a number of calls to the entry of the action."""
        self._write = write
        self._clock = clock
        self._entries: dict[tuple[str, ...], _Entry] = {}
        self.loop = Loop("counted calls", self.flush, WRITE_INTERVAL)

    def record(self, action: Action, code: str, sentence: str = "", count: int = 1) -> None:
        """Count the call. The entry has the first call of its minute, and the topics and ids of all."""
        # By the peer alone: a caller that invents visitors would take all entries.
        key = (action.user, action.method, action.peer, code)
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= MOST_ENTRIES:
                return
            entry = _Entry(action, code, sentence, self._clock() + ENTRY_SECONDS)
            self._entries[key] = entry
        else:
            entry.action.topics = tuple(dict.fromkeys((*entry.action.topics, *action.topics)))[:MOST_IDS]
            entry.action.ids = tuple(dict.fromkeys((*entry.action.ids, *action.ids)))[:MOST_IDS]
        entry.unwritten += count

    async def flush(self) -> None:
        """Write what was counted, and forget the entries whose minute is over."""
        for key, entry in list(self._entries.items()):
            if entry.unwritten:
                count, entry.unwritten = entry.unwritten, 0
                try:
                    await self._write(entry.action, entry.code, entry.sentence, count)
                except BaseException:
                    entry.unwritten += count
                    raise
            if not entry.unwritten and self._clock() >= entry.until:
                del self._entries[key]


_SQL = statements("database/audit.sql")


# ---------------------------------------------------------------- audit
# The audit: an entry for each action, written in the transaction of the change. ADR-0081

_LONGEST_VALUE = 500
# Shown by their size: the rest is a checksum of what belongs to the application.
_BY_SIZE = ("payload", "metadata")


def _each(rows: Rows) -> int | None:
    return len(rows) or None


def _with_itself(rows: Rows) -> int | None:
    """The first row is of a workflow, and true if it was changed. The others are of its jobs."""
    return len(rows) - 1 if rows and (rows[0][0] or len(rows) > 1) else None


# The statements that change jobs, and how many they have changed. None: nothing.
_OF_JOBS: Mapping[str, Callable[[Rows], int | None]] = {
    **dict.fromkeys(
        ("cancel_jobs", "retry_jobs", "prioritize_jobs", "delete_jobs", "undo_jobs", "fire_now"), _each
    ),
    **dict.fromkeys(("cancel_workflow", "retry_workflow"), _with_itself),
    "signal_job": lambda rows: 1 if rows and rows[0]["is_stored"] else None,
}
# The statements that change settings.
_PAUSES = frozenset({"pause_topic", "resume_topic", "pause_everything", "resume_everything"})
_OF_TOPICS = frozenset({"set_topic", "hold", "set_lane"})
_OF_A_SCHEDULE = frozenset(
    {"create_schedule", "update_schedule", "pause_schedule", "resume_schedule", "delete_schedule"}
)
_OF_A_WORKER = frozenset({"set_worker_state", "resume_worker"})
# Of every worker that starts, and rarely a change.
_DECLARATIONS = frozenset({"declare_topics", "declare_schedules"})
_OF_SETTINGS = _PAUSES | _OF_TOPICS | _OF_A_SCHEDULE | _OF_A_WORKER | _DECLARATIONS
AUDITED = _OF_SETTINGS | _OF_JOBS.keys()


def recorded(name: str, args: Sequence[object], work: Work) -> Work:
    """Return the work of a statement, followed by the entry of the action under way if there is a change.

    Without an action, or for a statement that changes nothing that is audited, this is the work itself.
    """
    action = current()
    if action is None or name not in AUDITED:
        return work
    if name in _DECLARATIONS:
        return _with_settings(action, name, args, work)  # rarely a change: it needs no lock
    if name in _OF_JOBS:
        return _behind_lock(_with_jobs(action, name, work))
    return _behind_lock(_with_settings(action, name, args, work))


def _behind_lock(work: Work) -> Work:
    async def run(fetch: Fetch) -> Rows:
        await fetch(_SQL["lock_audit"])
        return await work(fetch)

    return run


def _with_jobs(action: Action, name: str, work: Work) -> Work:
    async def run(fetch: Fetch) -> Rows:
        rows = await work(fetch)
        changed = _OF_JOBS[name](rows)
        if changed is not None:
            ids = [*action.ids, *(str(row["id"]) for row in rows[:MOST_IDS] if "id" in row)]
            topics = [*action.topics, *(row["topic"] for row in rows if "topic" in row)]
            await _write(fetch, action, changed, topics, ids)
        return rows

    return run


def _with_settings(action: Action, name: str, args: Sequence[object], work: Work) -> Work:
    if name in _PAUSES:
        lock = f"pause {' '.join(action.topics)}"
        return _with_changes(action, lock, "read_pauses", (action.topics,), work)
    asked = (
        () if name in _OF_A_SCHEDULE or name == "declare_schedules" else action.topics,
        action.asked.get("lane"),
        args[0] if name in _OF_A_SCHEDULE else None,
        action.asked.get("application") if name == "declare_schedules" else None,
        args[0] if name in _OF_A_WORKER else None,
    )
    if name in _DECLARATIONS:
        return _with_changes(action, None, "read_settings", asked, work)
    if name in _OF_TOPICS:
        lock = f"settings {' '.join(action.topics)}"
    else:
        lock = f"{'schedule' if name in _OF_A_SCHEDULE else 'worker'} {args[0]}"
    return _with_changes(action, lock, "read_settings", asked, work)


def _with_changes(action: Action, lock: str | None, read: str, asked: Sequence[object], work: Work) -> Work:
    async def run(fetch: Fetch) -> Rows:
        if lock is not None:
            await fetch(_SQL["lock_settings"], lock)
        before = await _settings(fetch, read, asked)
        rows = await work(fetch)
        after = await _settings(fetch, read, asked)
        changes = _difference(before, after)
        if changes:
            ids = [*action.ids, *(str(row["id"]) for row in rows if "id" in row)]
            of_schedule = [held["topic"] for held in (before, after) if "topic" in held]
            topics = [*of_schedule, *_topics(action, changes)]
            await _write(fetch, action, 0 if action.count else 1, topics, ids, changes)
        if lock is not None:
            await fetch(_SQL["unlock_settings"], lock)
        return rows

    return run


async def add_to_entry(fetch: Fetch, topic: str, changes: Mapping[str, Any]) -> None:
    """Add to the entry that the action under way has written. Without an entry, nothing is written."""
    action = current()
    if action is not None and action.count and topic in action.topics:
        await _write(fetch, action, 0, [topic], [], changes)


async def _settings(fetch: Fetch, read: str, asked: Sequence[object]) -> dict[str, Any]:
    ((text,),) = await fetch(_SQL[read], *asked)
    settings: dict[str, Any] = json.loads(text)
    return settings


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that differ, each with its old and new value."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    changes: dict[str, Any] = {
        name: {"old": _shown(name, before.get(name)), "new": _shown(name, after.get(name))}
        for name in names[:MOST_IDS]
    }
    if len(names) > MOST_IDS:
        changes["(more)"] = {"old": None, "new": f"{len(names) - MOST_IDS} further entries"}
    return changes


def _shown(name: str, value: Any) -> Any:
    entry = name.rpartition(": ")[2].removeprefix("declared.")
    if isinstance(value, list):  # workers declare different values
        return [_shown(name, each) for each in value]
    if type(value) not in (int, str) and (read := from_json({entry: value})):
        return ENTRIES[entry].text(read[entry])  # as the CLI takes it
    if not isinstance(value, str):
        return value
    return " ".join(value.split()[:2]) if entry in _BY_SIZE else value[:_LONGEST_VALUE]


def _topics(action: Action, changes: Mapping[str, Any]) -> Sequence[str]:
    """Return the topics whose settings have changed. With several, each entry begins with its topic."""
    if len(action.topics) <= 1:
        return action.topics
    return [topic for topic, mark, _ in (name.rpartition(": ") for name in changes) if mark]


async def _write(
    fetch: Fetch,
    action: Action,
    changed: int,
    topics: Sequence[str],
    ids: Sequence[str],
    changes: Mapping[str, Any] | None = None,
) -> None:
    rows = await fetch(
        _SQL["write_entry"], *entry_columns(action, "OK", "", topics, ids, changes or {}, changed)
    )
    if not rows:
        raise InvalidArgument("action_id", "belongs to another action. Make a new UUID for each action.")
    action.count = rows[0]["changed"] or 1


def entry_columns(
    action: Action,
    outcome: str,
    refusal: str,
    topics: Sequence[str],
    ids: Sequence[str],
    changes: Mapping[str, Any],
    changed: int,
) -> tuple[object, ...]:
    """Return the arguments of write_entry."""
    return (
        action.id,
        action.user,
        action.role,
        action.address,
        action.method,
        action.reason,
        outcome,
        refusal,
        list(dict.fromkeys(topics))[:MOST_IDS],
        list(dict.fromkeys(ids))[:MOST_IDS],
        json.dumps(action.asked, default=str),
        json.dumps(changes),
        changed,
    )
