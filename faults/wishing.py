"""Producers that store a wish and its job in one transaction of their own."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from typing import Any

import asyncpg

import pulse
from faults.audit import Connection
from faults.bank import SESSION_SETTINGS, movement_of
from faults.cluster import AWAY
from faults.errands import Errand
from faults.history import History
from faults.limited_topics import LIMITED, TENANTS
from faults.meddling import pause
from faults.topics import TRANSFER

# Some topics with limits: ctx.complete has to give their slots back.
_TOPICS = {TRANSFER: 18, LIMITED: 1, TENANTS: 1}
_LANES = 5
_ROLLED_BACK_SHARE, _KEY_SHARE, _REPEATED_SHARE, _WAKE_SHARE = 0.1, 0.35, 0.4, 0.5
# Some transactions are open for a while after the job was enqueued.
_OPEN_SHARE, _OPEN_SECONDS = 0.15, 0.6
# Enough that no job runs out of them by chance.
_ATTEMPTS = 30
_PATIENCE_SECONDS = 10.0


class Wishing:
    """Stores one wish after the other. After an error its outcome is unknown, and it is not repeated."""

    def __init__(self, history: History, dsn: str, doors: list[pulse.Pulse], random: Random) -> None:
        self._history = history
        self._dsn = dsn
        self._doors = doors
        self._random = random
        self._numbers = count(1)

    async def wish_on_and_on(self, wishes_per_second: float, is_over: asyncio.Event) -> None:
        connection: Connection | None = None
        while not is_over.is_set():
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    if connection is None or connection.is_closed():
                        connection = await asyncpg.connect(self._dsn, server_settings=SESSION_SETTINGS)
                    await self._wish(connection)
            except (*AWAY, pulse.PulseError):
                if connection is not None:
                    connection.terminate()
                connection = None
            await pause(self._random.expovariate(wishes_per_second), is_over)
        if connection is not None:
            connection.terminate()

    async def _wish(self, connection: Connection) -> None:
        key = f"{self._history.who}-wish-{next(self._numbers)}"
        (topic,) = self._random.choices(list(_TOPICS), weights=list(_TOPICS.values()))
        options: dict[str, Any] = {"max_attempts": _ATTEMPTS}
        if topic == TENANTS:
            options["lane"] = f"lane-{self._random.randrange(_LANES)}"
        if self._random.random() < _KEY_SHARE:
            options["key"] = key
        is_rolled_back = self._random.random() < _ROLLED_BACK_SHARE
        await self._store(connection, topic, key, options, is_rolled_back=is_rolled_back)
        if "key" in options and not is_rolled_back and self._random.random() < _REPEATED_SHARE:
            await self._store(connection, topic, key, options, is_repeat=True)
        if self._random.random() < _WAKE_SHARE:
            pulse.sql.wake(self._random.choice(self._doors))

    async def _store(
        self,
        connection: Connection,
        topic: str,
        key: str,
        options: dict[str, Any],
        *,
        is_rolled_back: bool = False,
        is_repeat: bool = False,
    ) -> None:
        """Store the wish and its job. A repeat stores neither: the wish was committed, and has the key."""
        submit = self._history.operation("submit", key=key, topic=topic, expect="transfer")
        transaction = connection.transaction()
        try:
            await transaction.start()
            job = await pulse.sql.enqueue(connection, topic, Errand(key, "transfer"), strict=True, **options)
            if not is_repeat:
                await connection.execute(
                    "INSERT INTO bank.wishes VALUES ($1, $2::text::uuid, $3, $4, $5)",
                    key,
                    job.id,
                    *movement_of(key),
                )
            if self._random.random() < _OPEN_SHARE:
                await asyncio.sleep(self._random.random() * _OPEN_SECONDS)
            if is_rolled_back:
                await transaction.rollback()
                submit.refused("rolled back")
            else:
                await transaction.commit()
                assert job.duplicate == is_repeat, f"{job} of {key}: duplicate is not {is_repeat}"
                submit.done(job_id=job.id)
        except (*AWAY, pulse.PulseError, asyncio.CancelledError) as error:
            if is_rolled_back:
                submit.refused(f"rolled back, {error!r}")
            else:
                submit.unknown(repr(error))
            raise
