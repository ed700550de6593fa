"""The pause switches. Each method sends the SQL section of its own name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime

from pulse_server.domain.dispatch import DispatchState, Pause
from pulse_server.domain.errors import Unavailable
from pulse_server.postgres.database import Database, Fetch, Rows
from pulse_server.postgres.statements import statements

_SQL = statements("dispatch.sql")

# Some 600 topics. Longer texts are parsed in a thread: 10,000 take 30 ms, which would delay jobs.
_LONG_TEXT = 64 * 1024


class PostgresDispatchRepo:
    def __init__(self, database: Database) -> None:
        self._database = database
        # The topics of the last read, and the text that they were read from. It is read every second, and
        # nearly always the same.
        self._last: tuple[str, Mapping[str, Pause]] = ("[]", {})

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
            topics=await self._topics(row["topics"] or "[]"),
        )

    async def _topics(self, text: str) -> Mapping[str, Pause]:
        known, topics = self._last
        if text != known:
            topics = await asyncio.to_thread(_read, text) if len(text) > _LONG_TEXT else _read(text)
            self._last = (text, topics)
        return topics

    async def pause_everything(self, reason: str, by: str = "") -> None:
        await self._switch("pause_everything", reason, by)

    async def resume_everything(self) -> None:
        await self._switch("resume_everything")

    async def pause_topic(self, topic: str, reason: str, by: str = "") -> None:
        await self._database.operators.fetch("pause_topic", _SQL["pause_topic"], topic, reason, by)

    async def resume_topic(self, topic: str) -> None:
        await self._database.operators.fetch("resume_topic", _SQL["resume_topic"], topic)

    async def _switch(self, name: str, *args: object) -> None:
        async def unless_locked(fetch: Fetch) -> Rows:
            if not await fetch(_SQL["lock_free_switch"]):
                raise Unavailable("The pause switch is locked by another session of the database. Try again.")
            return await fetch(_SQL[name], *args)

        await self._database.operators.fetch(name, _SQL[name], *args, if_locked=unless_locked)


def _read(text: str) -> Mapping[str, Pause]:
    return {
        topic: Pause(reason, datetime.fromisoformat(since), by)
        for topic, reason, since, by in json.loads(text)
    }
