"""How large the jobs table is, and how much of it is dead."""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

_LOOK = """
SELECT
    pg_stat_get_dead_tuples('pulse.jobs'::regclass)::bigint,
    pg_table_size('pulse.jobs') / 1e6::float8,
    pg_indexes_size('pulse.jobs') / 1e6::float8,
    pg_relation_size('pulse.jobs_claim') / 1e6::float8
"""


class Bloat(NamedTuple):
    dead_rows: int
    table_megabytes: float
    indexes_megabytes: float
    claim_index_megabytes: float


async def look(connection: asyncpg.Connection[asyncpg.Record]) -> Bloat:
    """Measure the table. Counts of dead rows are about a second late."""
    row = await connection.fetchrow(_LOOK)
    assert row is not None
    return Bloat(*row)
