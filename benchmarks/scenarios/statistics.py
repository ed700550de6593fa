"""A burst after an ANALYZE of the empty tables, beside a burst without it. ADR-0007

The planner takes the statistics of such a moment for those of the burst. Autovacuum is off for the tables:
its ANALYZE in the middle of a burst would end the state that is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import asyncpg

from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.repeating import Runs, in_turn
from benchmarks.stand import Stand

JOBS = 20_000
BEFORE = f"burst of {JOBS:,} jobs, never analyzed"
AFTER = f"burst of {JOBS:,} jobs, analyzed while empty"
# A few pages stay: a table without any is taken for one of ten pages.
_USED = 1_000
_TABLES = """
SELECT format('pulse.%I', relname) AS name FROM pg_class
WHERE relnamespace = 'pulse'::regnamespace AND relkind = 'r'
"""


async def measure(stand: Stand) -> list[Figure]:
    runs: Runs[Drained] = {
        BEFORE: partial(_burst, stand, is_analyzed=False),
        AFTER: partial(_burst, stand, is_analyzed=True),
    }
    outcomes = await in_turn(stand, runs)
    before, after = (_seconds(outcomes[name], stand.sized(JOBS)) for name in runs)
    return [
        Figure("statistics", BEFORE, "s", before),
        Figure("statistics", AFTER, "s", after),
        Figure(
            "statistics",
            "analyzed while empty, by turns",
            "times",
            [late / early for early, late in zip(before, after, strict=True)],
            "as long as never analyzed",
        ),
    ]


async def _burst(stand: Stand, *, is_analyzed: bool) -> Drained:
    async with stand.database() as dsn:
        await fill(dsn, _USED)
        await _empty(dsn, is_analyzed=is_analyzed)
        jobs = stand.sized(JOBS)
        await fill(dsn, jobs)
        async with stand.pulsed(dsn) as server:
            return await drain(stand, dsn, [server], [TOPIC], jobs)


async def _empty(dsn: str, *, is_analyzed: bool) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        tables = [row["name"] for row in await connection.fetch(_TABLES)]
        for table in tables:
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await connection.execute("DELETE FROM pulse.jobs")
        if is_analyzed:
            for table in tables:
                await connection.execute(f"VACUUM (TRUNCATE off, ANALYZE) {table}")
        else:
            await connection.execute("TRUNCATE pulse.jobs")
    finally:
        await connection.close()


def _seconds(runs: Sequence[Drained], jobs: int) -> list[float]:
    return [jobs / run.rate for run in runs]
