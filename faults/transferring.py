"""The work of jobs that move money: the transfer and the end of the job are one transaction.

Some handlers fail before its commit, some after it. Some complete, roll back and return. None is stopped by a
cancellation: a worker that was frozen past its lease goes on, and has to be refused.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import asyncpg

import pulse
from faults.audit import Connection
from faults.bank import SESSION_SETTINGS, movement_of
from faults.cluster import AWAY
from faults.history import COMPLETED, History
from faults.stepped_work import run_of

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
