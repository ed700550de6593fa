"""A worker of the run, as a process of its own: `python -m faults.worker_program '{…}'`.

The arguments of a job decide its outcome. Handlers of both kinds record their start before they do anything
else, and how they ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import asyncpg

import pulse
from faults.adding import Adding
from faults.audit import Connection
from faults.bank import SESSION_SETTINGS, movement_of
from faults.cluster import AWAY
from faults.errands import AT_THE_PACE, Errand
from faults.history import CANCELLED, COMPLETED, History
from faults.limited_topics import METERED, declared
from faults.stalls import note_stalls
from faults.stepped_work import SteppedWork, run_of
from faults.topics import SYNC
from pulse import tuning

# ---------------------------------------------------------------- transferring
# The work of jobs that move money: the transfer and the end of the job are one transaction.
#
# Some handlers fail before its commit, some after it. Some complete, roll back and return. None is stopped by
# a cancellation: a worker that was frozen past its lease goes on, and has to be refused.


# Of all attempts.
_FAILS_BEFORE, _FAILS_AFTER, _ROLLS_BACK = 0.03, 0.03, 0.03
# Pauses before, in and after the transaction, in which the worker may be killed or frozen.
_SLOW_SHARE, _SLOW_SECONDS = 0.2, 0.5
# Some begin their transaction late. Their leases may be lost by then.
_LATE_SHARE, _LATE_SECONDS = 0.08, (1.0, 3.0)
_POOL = 4
_PATIENCE_SECONDS = 10.0
_ROLLED_BACK = "rolled back"


class _RollBack(Exception):
    """Ends a transaction without a commit."""


class Transferring:
    """Moves the money of wishes.

    Without `completes` handlers return after their commit, as if there were no ctx.complete. That moves money
    twice, and the checker has to find it.
    """

    def __init__(self, history: History, worker_id: str, dsn: str, *, completes: bool) -> None:
        self._history = history
        self._worker_id = worker_id
        self._completes = completes
        # It connects when it is used: the database may be away.
        self._pool: asyncpg.Pool[asyncpg.Record] = asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=_POOL,
            timeout=_PATIENCE_SECONDS,
            command_timeout=_PATIENCE_SECONDS,
            server_settings=SESSION_SETTINGS,
        )
        self._moves: set[asyncio.Task[str | Exception]] = set()

    async def work(self, key: str, ctx: pulse.Context) -> str:
        """Move the money of this wish. Returns how the handler ends, or raises."""
        moving = asyncio.create_task(self._move(key, ctx))
        self._moves.add(moving)
        moving.add_done_callback(self._moves.discard)
        outcome = await asyncio.shield(moving)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _move(self, key: str, ctx: pulse.Context) -> str | Exception:
        """Return errors instead of raising them: after a cancellation no caller is left."""
        random = Random(f"{ctx.job_id} {run_of(ctx)}")
        try:
            await _pause(random)
            if random.random() < _LATE_SHARE:
                await asyncio.sleep(random.uniform(*_LATE_SECONDS))
            await self._pool  # opens it, the first time
            async with self._pool.acquire(timeout=_PATIENCE_SECONDS) as connection:
                await self._transfer(connection, key, ctx, random)
            await _pause(random)
            if random.random() < _FAILS_AFTER:
                raise RuntimeError("after the commit")
        except _RollBack:
            return _ROLLED_BACK
        except pulse.ClaimLost as error:
            self._write("claim_lost", ctx)
            return error
        except (*AWAY, pulse.PulseError, RuntimeError) as error:
            return error
        return COMPLETED

    async def _transfer(self, connection: Any, key: str, ctx: pulse.Context, random: Random) -> None:
        async with connection.transaction():
            await _move_money(connection, key)
            await connection.execute(
                "INSERT INTO bank.transfers VALUES ($1, $2::text::uuid, $3, $4)",
                key,
                ctx.job_id,
                run_of(ctx),
                self._worker_id,
            )
            await _pause(random)
            if random.random() < _FAILS_BEFORE:
                raise RuntimeError("before the commit")
            if self._completes:
                self._write("completing", ctx)
                await ctx.complete(connection)
                await _pause(random)
                if random.random() < _ROLLS_BACK:
                    raise _RollBack

    def _write(self, what: str, ctx: pulse.Context) -> None:
        self._history.write(what, job_id=ctx.job_id, run=run_of(ctx), worker=self._worker_id)


async def _move_money(connection: Connection, key: str) -> None:
    origin, target, amount = movement_of(key)
    # In one order, or two transfers could wait for each other.
    for account, change in sorted(((origin, -amount), (target, amount))):
        await connection.execute(
            "UPDATE bank.accounts SET balance = balance + $2 WHERE id = $1", account, change
        )


async def _pause(random: Random) -> None:
    if random.random() < _SLOW_SHARE:
        await asyncio.sleep(random.random() * _SLOW_SECONDS)


# ---------------------------------------------------------------- worker program


_RETRY_SOON = timedelta(milliseconds=50)
# A flaky job fails at some of its first attempts: it must not run out of them.
_FLAKY_ATTEMPTS = 3
_POLL_SECONDS = 0.01
_HOLD, _HOLDS_OF = timedelta(milliseconds=300), 40
# One in so many jobs reports its progress, returns something, and returns a lot.
_REPORTS_OF, _RETURNS_OF, _RETURNS_MUCH_OF = 3, 4, 40
_MUCH = "x" * 5_000
_PACE_SECONDS, _PACES = 6.0, (0.0, 0.7)
# The leases of a run are a twentieth of the default, and so is the longest backoff of a reconnect.
_LONGEST_PAUSE_SECONDS = 0.25
# So is the time between two writes of progress.
_PROGRESS_SECONDS = 0.05


def seconds_of(errand: Errand) -> float:
    """Return how long the work takes now."""
    if errand.seconds != AT_THE_PACE:
        return errand.seconds
    return _PACES[int(time.monotonic() / _PACE_SECONDS) % len(_PACES)]


def failure(errand: Errand, ctx: pulse.Context) -> Exception | None:
    """Return the error with which this attempt ends; None for a success."""
    is_first = ctx.attempt == 1
    match errand.expect:
        case "fail":
            return RuntimeError("every attempt fails")
        case "discard":
            return pulse.Discard("discarded by the test")
        case "fail_once" if is_first:
            return RuntimeError("the first attempt fails")
        case "retry_once" if is_first:
            return pulse.Retry(_RETRY_SOON, "not yet")
        case "snooze_once" if run_of(ctx) == 1:
            return pulse.Snooze(_RETRY_SOON, "not now")
        case "snooze_twice" if run_of(ctx) <= 2:
            return pulse.Snooze(_RETRY_SOON, "not now")
        case "flaky" if ctx.attempt <= _FLAKY_ATTEMPTS and _toss(ctx):
            return RuntimeError("this attempt fails")
    return None


def _holds(ctx: pulse.Context) -> bool:
    """Whether the API that this job calls asks for a break."""
    return zlib.crc32(ctx.job_id.encode()) % _HOLDS_OF == 0


def _reports(ctx: pulse.Context) -> bool:
    """Whether the handler of this job reports its progress."""
    return zlib.crc32(ctx.job_id.encode()) % _REPORTS_OF == 0


def _result(ctx: pulse.Context) -> list[Any] | None:
    """What the handler of this job returns: another value each time."""
    number = zlib.crc32(ctx.job_id.encode()[::-1])
    if number % _RETURNS_OF:
        return None
    return [ctx.attempt, time.monotonic_ns(), _MUCH if number % _RETURNS_MUCH_OF == 0 else ""]


def _text(cursor: Any) -> str | None:
    """Return the cursor as the row has it."""
    return None if cursor is None else json.dumps(cursor, separators=(",", ":"))


def _toss(ctx: pulse.Context) -> bool:
    return bool(zlib.crc32(f"{ctx.job_id} {ctx.attempt}".encode()) & 1)


class Handlers:
    """The handlers of one worker, which write what they do to its history."""

    def __init__(self, history: History, worker_id: str, transferring: Transferring, adding: Adding) -> None:
        self._history = history
        self._worker_id = worker_id
        self._transferring = transferring
        self._adding = adding
        self._steps = SteppedWork(history, worker_id)

    def handler_of(self, topic: str) -> Callable[..., Any]:
        return self.work_in_thread if topic in SYNC else self.work

    async def work(self, errand: Errand, ctx: pulse.Context) -> list[Any] | None:
        self._started(ctx)
        try:
            self._report(ctx)
            if errand.expect == "steps":
                await self._steps.work(ctx)
            elif errand.expect == "transfer":
                return await self._transfer(errand, ctx)
            elif errand.expect == "add":
                await self._adding.work(errand, ctx)
            elif errand.expect == "block":
                # Blocks the event loop, as a careless handler does.
                time.sleep(errand.seconds)  # noqa: ASYNC251
            elif seconds := seconds_of(errand):
                await asyncio.sleep(seconds)
            if ctx.topic == METERED and _holds(ctx):
                with suppress(pulse.PulseError):
                    await ctx.hold(_HOLD)
        except asyncio.CancelledError:
            self._ended(ctx, CANCELLED)
            raise
        except (pulse.Suspension, pulse.Cancelled) as end:
            self._ended(ctx, type(end).__name__)
            raise
        return self._end(errand, ctx)

    async def _transfer(self, errand: Errand, ctx: pulse.Context) -> None:
        try:
            outcome = await self._transferring.work(errand.key, ctx)
        except Exception as error:
            self._ended(ctx, type(error).__name__)
            raise
        self._ended(ctx, outcome)

    def work_in_thread(self, errand: Errand, ctx: pulse.Context) -> list[Any] | None:
        self._started(ctx)
        if errand.expect == "steps":
            try:
                self._steps.work_in_thread(ctx)
            except (pulse.Suspension, pulse.Cancelled) as end:
                self._ended(ctx, type(end).__name__)
                raise
        end = time.monotonic() + seconds_of(errand)
        while (left := end - time.monotonic()) > 0:
            self._report(ctx)
            if ctx.cancelled:
                self._ended(ctx, CANCELLED)
                ctx.raise_if_cancelled()
            time.sleep(min(left, _POLL_SECONDS))
        return self._end(errand, ctx)

    def _started(self, ctx: pulse.Context) -> None:
        facts = {"progress": _text(ctx.cursor)} if _reports(ctx) else {}
        self._history.write(
            "started",
            job_id=ctx.job_id,
            attempt=ctx.attempt,
            run=run_of(ctx),
            worker=self._worker_id,
            topic=ctx.topic,
            **facts,
        )

    def _report(self, ctx: pulse.Context) -> None:
        """Report progress that names its writer, and grows."""
        if _reports(ctx):
            ctx.progress(None, cursor=[self._worker_id, run_of(ctx), time.monotonic_ns()])

    def _end(self, errand: Errand, ctx: pulse.Context) -> list[Any] | None:
        self._report(ctx)
        error = failure(errand, ctx)
        if error is not None:
            self._ended(ctx, type(error).__name__)
            raise error
        result = _result(ctx)
        self._ended(ctx, COMPLETED, **({} if result is None else {"result": result}))
        return result

    def _ended(self, ctx: pulse.Context, outcome: str, **facts: Any) -> None:
        self._history.write(
            "ended",
            job_id=ctx.job_id,
            attempt=ctx.attempt,
            run=run_of(ctx),
            worker=self._worker_id,
            outcome=outcome,
            **facts,
        )


async def main(
    name: str,
    worker_id: str,
    address: str,
    history: str,
    topics: list[str],
    concurrency: int,
    drain_seconds: float,
    bank: str,
    completes: bool,
) -> None:
    tuning.RECONNECT_LONGEST_SECONDS = tuning.RETRY_LONGEST_SECONDS = _LONGEST_PAUSE_SECONDS
    tuning.REDIAL_LONGEST_MILLISECONDS = int(_LONGEST_PAUSE_SECONDS * 1000)
    tuning.PROGRESS_SECONDS = _PROGRESS_SECONDS
    p = pulse.Pulse(
        address,
        concurrency=concurrency,
        worker_id=worker_id,
        drain_timeout=timedelta(seconds=drain_seconds),
    )
    events = History(Path(history), name)
    note_stalls(events)
    transferring = Transferring(events, worker_id, bank, completes=completes)
    handlers = Handlers(events, worker_id, transferring, Adding(events, worker_id, p))
    for topic in topics:
        p.register(topic, handlers.handler_of(topic), **declared(topic, name))
    async with p:
        await p.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(**json.loads(sys.argv[1])))
