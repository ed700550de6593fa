"""Statistics of another time: the tables are analyzed or vacuumed at the worst moment, and then jobs arrive.

Autovacuum does so by itself. No fault excuses what follows: the promises hold under any statistics.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from faults.audit import Connection
from faults.flooding import Flood, draw_flood, is_warm, pour
from faults.kinds.fault import Fault, Kind
from faults.topics import FLOOD

if TYPE_CHECKING:
    from faults.world import World

_TARGET = "statistics"
_SECONDS = (5.0, 8.0)
_COMMANDS = ("ANALYZE", "VACUUM", "VACUUM (ANALYZE)")
_UNCOMMITTED = 3_000
_ROWS_THAT_NEVER_WERE = f"""
SELECT pulse.enqueue(topic => '{FLOOD}', payload => convert_to('{{}}', 'UTF8')) FROM generate_series(1, $1)
"""
_TABLES = """
SELECT format('%I.%I', relation.relnamespace::regnamespace, relation.relname)
FROM pg_class AS relation
WHERE relation.relnamespace = 'pulse'::regnamespace AND relation.relkind = 'r'
ORDER BY 1
"""
# What ANALYZE leaves of a table that is empty at that moment, and was never analyzed with a row. The queue of
# a run is never empty, so it is written down.
_AS_IF_EMPTY = """
WITH forgotten AS (
    DELETE FROM pg_statistic
    WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'pulse'::regnamespace)
)
UPDATE pg_class
SET reltuples = 0, relpages = GREATEST(1, pg_relation_size(oid) / 8192)
WHERE relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'i')
"""


def _drawn(random: Random) -> Fault:
    how = {
        "when": random.choice(list(_MOMENTS)),
        "command": random.choice(_COMMANDS),
        "flood": draw_flood(random),
    }
    return Fault(_TARGET, random.uniform(*_SECONDS), frozenset(), how, excludes=frozenset({FLOOD}))


async def _while_empty(world: World, session: Connection, fault: Fault) -> None:
    await session.execute(_AS_IF_EMPTY)


async def _while_uncommitted(world: World, session: Connection, fault: Fault) -> None:
    """Rows of an open transaction are in the pages, and count for nothing."""
    async with world.cluster.session() as application:
        transaction = application.transaction()
        await transaction.start()
        try:
            await application.execute(_ROWS_THAT_NEVER_WERE, _UNCOMMITTED)
            await _all_tables(session, fault.how["command"])
        finally:
            await transaction.rollback()


async def _after_a_mass_delete(world: World, session: Connection, fault: Fault) -> None:
    await pour(world, fault.how["flood"])
    await world.operator.cancel_all(FLOOD)
    for status in ("CANCELED", "COMPLETED", "DEAD_LETTERED"):
        await world.operator.delete_all(FLOOD, status)
    await _all_tables(session, fault.how["command"])


_MOMENTS = {
    "empty": _while_empty,
    "uncommitted": _while_uncommitted,
    "after a mass delete": _after_a_mass_delete,
}


async def _all_tables(session: Connection, command: str) -> None:
    for row in await session.fetch(_TABLES):
        await session.execute(f"{command} {row[0]}")


async def _mislead(world: World, fault: Fault) -> None:
    flood: Flood = fault.how["flood"]
    with world.recorded(fault.kind, fault.target, when=fault.how["when"], command=fault.how["command"]):
        async with world.cluster.session() as session:
            await _MOMENTS[fault.how["when"]](world, session, fault)
        await pour(world, flood.again())
        await is_warm(world, flood)


KINDS = [Kind("statistics", _drawn, _mislead, 3)]
