"""Transactions as the database counts them, statements as pulsed counts them."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg

# A backend hands its counts over when it ends, or once it has been idle for ten seconds.
FLUSHED_AFTER_SECONDS = 10.5
_PATIENCE_SECONDS = 5

_TRANSACTIONS = "SELECT xact_commit, xact_rollback FROM pg_stat_database WHERE datname = $1"
_BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'"


class Transactions(NamedTuple):
    committed: int
    rolled_back: int

    def since(self, before: Transactions, own: int = 0) -> Transactions:
        """Return the increase since `before`, less `own` commits made by the benchmark itself."""
        return Transactions(self.committed - before.committed - own, self.rolled_back - before.rolled_back)

    @property
    def note(self) -> str:
        return f"{self.committed:,} commits, {self.rolled_back:,} rollbacks"


async def read_transactions(server_dsn: str, dsn: str, *, when_all_left: bool = True) -> Transactions:
    """Return the counts of the database that `dsn` names, asked through a connection to another one.

    Waits until no session is connected to it: ended backends have reported all their counts.
    """
    database = urlsplit(dsn).path.lstrip("/")
    connection = await asyncpg.connect(server_dsn)
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while when_all_left and await connection.fetchval(_BACKENDS, database):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        row = await connection.fetchrow(_TRANSACTIONS, database)
    finally:
        await connection.close()
    assert row is not None, f"there is no database {database}"
    return Transactions(*row)


async def read_metrics(socket: Path) -> str:
    """Return the text of /metrics."""
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    assert text.startswith("HTTP/1.1 200 "), text[:200]
    return text


def count_of(metrics: str, name: str, label: str = "") -> float:
    """Return the sum of a metric over all labels, or over samples that carry the given label."""
    samples = re.findall(rf"^{name}({{.*}})? ([0-9.e+-]+)$", metrics, re.MULTILINE)
    return sum(float(value) for labels, value in samples if label in labels)


def statements_in(metrics: str) -> int:
    """Return how many statements the server has sent to its database."""
    return int(count_of(metrics, "pulse_statement_seconds_count"))
