"""Commits are slow, and not only statements: a synchronous standby that answers late, or a slow disk.

A deferred constraint trigger sleeps when the transaction commits. No timeout of a statement ends it, and its
locks are held meanwhile.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from faults.cast import LEASE_SECONDS
from faults.kinds.database import POSTGRES
from faults.kinds.fault import ALL_WORK, Fault, Kind

if TYPE_CHECKING:
    from faults.world import World

SLOW_COMMITS = "slow commits"
# Shorter and longer than a lease, and longer than a server waits for a statement.
_COMMIT_SECONDS = (0.3, 0.8 * LEASE_SECONDS, 1.2 * LEASE_SECONDS, 2 * LEASE_SECONDS, 6.0)
_SECONDS = (3.0, 7.0)
_RETURN_SECONDS = 3.0
_TRIGGER = """
CREATE OR REPLACE FUNCTION audit.commit_slowly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('audit.slow_commit', true) IS DISTINCT FROM txid_current()::text THEN
        PERFORM set_config('audit.slow_commit', txid_current()::text, true);
        PERFORM pg_sleep(TG_ARGV[0]::float8);
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER commits_slowly AFTER INSERT OR UPDATE OR DELETE ON pulse.jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit.commit_slowly('{seconds}')
"""
_NO_TRIGGER = "DROP TRIGGER IF EXISTS commits_slowly ON pulse.jobs"


def _slow(random: Random) -> Fault:
    how = {"seconds": random.choice(_COMMIT_SECONDS)}
    return Fault(POSTGRES, random.uniform(*_SECONDS), ALL_WORK, how)


async def _commit_slowly(world: World, fault: Fault) -> None:
    with world.recorded(fault.kind, fault.target, **fault.how):
        try:
            async with world.cluster.session() as session:
                await session.execute(_TRIGGER.replace("{seconds}", f"{fault.how['seconds']}"))
            await asyncio.sleep(fault.seconds)
        finally:
            await asyncio.shield(world.cluster.execute_surely(_NO_TRIGGER))
        await asyncio.sleep(fault.how["seconds"])  # the last of them are still under way


KINDS = [Kind(SLOW_COMMITS, _slow, _commit_slowly, 2, _RETURN_SECONDS)]
SPELLS = KINDS
