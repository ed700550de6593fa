"""The pause switches, the states of workers, and claims under limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import asyncpg

from pulse_server.base.errors import LimitsLocked, Unavailable
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.dispatch.rules import DispatchState, LimitedClaims, LimitedHandover, Pause, WorkerState
from pulse_server.jobs import inserts
from pulse_server.jobs.leases import claimed_jobs, slot_arguments, with_steps
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.reports import Slots

# ---------------------------------------------------------------- dispatch
# The pause switches, the limited topics and the states of workers.
#
# Each method sends the SQL section of the same name.

Values = TypeVar("Values", bound=Mapping[Any, Any])

_SQL = statements("dispatch/store.sql")

# Some 600 topics. Longer texts are parsed in a thread: 10,000 take 30 ms, which would delay jobs.
_LONG_TEXT = 64 * 1024


class PostgresDispatchRepo:
    def __init__(self, database: Database) -> None:
        self._database = database
        # The last values, and the text they were read from. The text is read every second and
        # rarely changes.
        self._topics = _LastRead(_read_pauses)
        self._limited = _LastRead(_read_values)
        self._ahead = _LastRead(_read_values)
        self._workers = _LastRead(_read_workers)

    async def read_gate(self) -> DispatchState:
        rows = await self._database.hot.fetch("read_gate", _SQL["read_gate"])
        if not rows:
            raise Unavailable(
                "The row of pulse.dispatch_control is missing, and nothing is handed out without it. "
                "Put it back: INSERT INTO pulse.dispatch_control (id) VALUES (1);"
            )
        row = rows[0]
        return DispatchState(
            everything=Pause(row["reason"], row["paused_at"], row["paused_by"]) if row["paused"] else None,
            topics=await self._topics.read(row["topics"] or "[]"),
            limited=await self._limited.read(row["limited"] or "[]"),
            ahead=frozenset(await self._ahead.read(row["ahead"] or "[]")),
            workers=await self._workers.read(row["workers"] or "[]"),
            secret=row["secret"] or b"",
        )

    async def pause_everything(self, reason: str, by: str = "") -> None:
        await self._switch("pause_everything", reason, by)

    async def resume_everything(self) -> None:
        await self._switch("resume_everything")

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None:
        await self._switch("pause_topic", topic, reason, by)

    async def resume_topic(self, topic: str) -> None:
        await self._switch("resume_topic", topic)

    async def set_worker_state(
        self, worker_id: str, states: Mapping[str, str], reason: str, by: str = ""
    ) -> None:
        """Set the state of processes of the worker, by run id."""
        await self._database.operators.fetch(
            "set_worker_state",
            _SQL["set_worker_state"],
            worker_id,
            list(states),
            list(states.values()),
            reason,
            by,
        )

    async def resume_worker(self, worker_id: str) -> bool:
        """Delete the states of all processes of the worker. False: there were none."""
        return bool(await self._database.operators.fetch("resume_worker", _SQL["resume_worker"], worker_id))

    async def _switch(self, name: str, *args: object) -> None:
        await self._database.unhindered.fetch_hastily(name, _SQL[name], *args)


class _LastRead(Generic[Values]):
    """A value per topic or worker, and the text that they were read from."""

    def __init__(self, read: Callable[[str], Values]) -> None:
        self._read = read
        self._text = "[]"
        self._values = read(self._text)

    async def read(self, text: str) -> Values:
        if text != self._text:
            is_long = len(text) > _LONG_TEXT
            values = await asyncio.to_thread(self._read, text) if is_long else self._read(text)
            self._text, self._values = text, values
        return self._values


def _read_pauses(text: str) -> Mapping[str, Pause]:
    return {
        topic: Pause(reason, datetime.fromisoformat(since), by)
        for topic, reason, since, by in json.loads(text)
    }


def _read_workers(text: str) -> Mapping[tuple[str, str], WorkerState]:
    return {
        (worker_id, run_id): WorkerState(name, reason, datetime.fromisoformat(set_at), set_by)
        for worker_id, run_id, name, reason, set_at, set_by in json.loads(text)
    }


def _read_values(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


# ---------------------------------------------------------------- limited claims
# Claims under limits. Each method sends the SQL section of the same name. ADR-0064

# How long a claim past locked pools, and the end of a change, wait for a lock.
HASTY_MILLISECONDS = 30


class PostgresLimitedClaims:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_limited(self, topics: Sequence[str], slots: Slots, lease: timedelta) -> LimitedClaims:
        """Lease jobs of these topics, in this order, within their limits, rates and lanes."""
        statement = _SQL["claim_limited"]
        arguments = [list(topics), *_slot_arguments(slots, lease), slots.running]

        async def past_locked_pools(fetch: Fetch) -> Rows:
            return await fetch_hastily(fetch, HASTY_MILLISECONDS, statement, *arguments, [])

        with lock_named():
            rows = await self._database.hot.fetch(
                "claim_limited", statement, *arguments, None, if_locked=past_locked_pools
            )
        return await self._claimed(rows, slots)

    async def hand_over_limited(
        self, topic: str, jobs: Sequence[NewJob], slots: Slots, lease: timedelta
    ) -> LimitedHandover:
        """Insert the jobs, all of this limited topic, and claim with the slots, in one statement.

        The claim may return these jobs, older ones, or none. It claims nothing if another session
        has locked the pool: this method does not wait for that lock.
        """
        arguments = _slot_arguments(slots, lease)
        answers, rows = await inserts.hand_over_limited(
            self._database.hot, "hand_over_limited", jobs, topic, *arguments
        )
        return LimitedHandover(answers, await self._claimed(rows, slots, columns_before=4))

    async def _claimed(self, rows: Rows, slots: Slots, columns_before: int = 0) -> LimitedClaims:
        leased = [row for row in rows if row["id"] is not None]
        next_starts = {
            row["topic"]: row["next_start_seconds"]
            for row in rows
            if row["id"] is None and row["topic"] is not None
        }
        # The last two columns are not in a plain claim: the lane, and when the next job may start.
        jobs = claimed_jobs([row[columns_before:-2] for row in leased], slots)
        if lanes := {str(row["id"]): row["lane"] for row in leased if row["lane"]}:
            jobs = [job._replace(lane=lanes.get(job.id)) for job in jobs]
        return LimitedClaims(await with_steps(self._database.hot, jobs), next_starts)


async def fetch_hastily(fetch: Fetch, milliseconds: int, statement: str, *args: object) -> Rows:
    """Run a statement that waits for a lock no longer than this."""
    await fetch(f"SET LOCAL lock_timeout = {milliseconds}")
    return await fetch(statement, *args)


@contextmanager
def lock_named() -> Iterator[None]:
    """Raise LimitsLocked if the statement gave up the wait for a lock."""
    try:
        yield
    except Unavailable as error:
        if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
            raise LimitsLocked from error
        raise


def _slot_arguments(slots: Slots, lease: timedelta) -> list[object]:
    return slot_arguments(slots._replace(packed=()), lease)[:6]
