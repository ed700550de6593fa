"""Reads the journal of the handlers, and compares it with the database."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.transport.jobs_table import JobsTable

_CLOCK_READINGS = 20


@dataclass(frozen=True, eq=False)
class Execution:
    """One line of the journal."""

    event: str
    at: float
    job_id: str
    attempt: int
    topic: str
    pid: int
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.facts["name"])


class Journal:
    """Reads the lines that the handlers append, each once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._entries: list[Execution] = []

    def entries(self) -> list[Execution]:
        """Return all entries so far, in their order."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is still being written
                self._entries.append(_entry(line))
                self._read += len(line)
        return self._entries


def _entry(line: bytes) -> Execution:
    facts = json.loads(line)
    fields = {name: facts.pop(name) for name in Execution.__dataclass_fields__ if name in facts}
    return Execution(**fields, facts=facts)


async def started_after_completion(table: JobsTable, starts: Iterable[Execution]) -> list[Execution]:
    """Return the executions that certainly began after the completion of their job was committed.

    The journal has this machine's clock, the rows have the database's. The database reads its clock between
    our sending and our receiving, so it is ahead of ours by no less than reading − received: with that, a
    start is never taken for later than it was.
    """
    ahead = await _database_ahead_by_at_least(table)
    rows = await table.connection.fetch(
        "SELECT id, finished_at FROM pulse.all_jobs WHERE status = 'COMPLETED'"
    )
    completed_at: dict[str, datetime] = {str(row["id"]): row["finished_at"] for row in rows}
    return [
        start
        for start in starts
        if start.job_id in completed_at
        and start.at + ahead.total_seconds() > completed_at[start.job_id].timestamp()
    ]


async def _database_ahead_by_at_least(table: JobsTable) -> timedelta:
    best = timedelta.min
    for _ in range(_CLOCK_READINGS):
        reading: datetime = await table.connection.fetchval("SELECT clock_timestamp()")
        best = max(best, timedelta(seconds=reading.timestamp() - time.time()))
    return best
