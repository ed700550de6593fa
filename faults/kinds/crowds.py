"""More than a hundred schedules, limited topics or workflows are locked or fail at once. The others go on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pulse
from faults.bystanders import CROWD_OF_SCHEDULES, CROWD_OF_TOPICS, CROWD_OF_WORKFLOWS
from faults.cluster import AWAY
from faults.errands import Errand
from faults.flooding import enqueue
from faults.kinds.fault import Fault, Kind
from faults.topics import MANY

if TYPE_CHECKING:
    from faults.world import World

_SECONDS = (5.0, 8.0)
_SCHEDULES, _EVERY = 130, timedelta(seconds=3)
_WORKFLOWS = 200
# All but a few of those that half of the workers serve. With a limit each, their claims are separate.
_TOPICS, _LIMIT, _JOBS = MANY[6:], 2, 5
_AGAIN_SECONDS = 0.1
_RETURN_SECONDS = 2.0
# The claims of these topics fail as they do behind a lock or a slow index. Only claims under limits: where a
# limit could not be set, jobs are claimed together with those of other topics.
_FAIL = """
CREATE OR REPLACE FUNCTION audit.claim_fails() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the claims of % fail', NEW.topic USING ERRCODE = 'query_canceled';
END
$$;
CREATE TRIGGER claims_fail BEFORE UPDATE ON pulse.jobs FOR EACH ROW
    WHEN (NEW.status = 'RUNNING' AND OLD.tier IS NOT NULL AND NEW.topic = ANY('{{topics}}'::text[]))
    EXECUTE FUNCTION audit.claim_fails()
"""
_FAIL_NO_MORE = "DROP TRIGGER IF EXISTS claims_fail ON pulse.jobs"


def _schedules(random: Random) -> Fault:
    return Fault(
        CROWD_OF_SCHEDULES, random.uniform(*_SECONDS), frozenset(), {"number": random.randrange(2**31)}
    )


def _workflows(random: Random) -> Fault:
    return Fault(CROWD_OF_WORKFLOWS, random.uniform(*_SECONDS), frozenset())


def _topics(random: Random) -> Fault:
    return Fault(CROWD_OF_TOPICS, random.uniform(*_SECONDS), frozenset(), {"number": random.randrange(2**31)})


async def _lock_schedules(world: World, fault: Fault) -> None:
    """They become due while another session has them."""
    names = [f"crowd-{fault.how['number']}-{place}" for place in range(_SCHEDULES)]
    await asyncio.gather(
        *(world.operator.create_schedule(n, MANY[0], pulse.Every(_EVERY), "one") for n in names)
    )
    try:
        async with world.cluster.session() as session, session.transaction():
            rows = await session.fetch(
                "SELECT id FROM pulse.schedules WHERE name = ANY($1) FOR UPDATE", names
            )
            with world.recorded(fault.kind, fault.target, held=[str(row["id"]) for row in rows]):
                await asyncio.sleep(fault.seconds)
    finally:
        await asyncio.shield(_delete_schedules(world, names))


async def _delete_schedules(world: World, names: list[str]) -> None:
    while True:
        try:
            async with world.cluster.session() as session:
                rows = await session.fetch("SELECT id::text FROM pulse.schedules WHERE name = ANY($1)", names)
        except AWAY:
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        if not rows:
            return
        await asyncio.gather(*(world.operator.delete_schedule(row["id"]) for row in rows))
        await asyncio.sleep(_AGAIN_SECONDS)


async def _lock_workflows(world: World, fault: Fault) -> None:
    select = "SELECT id FROM pulse.workflows ORDER BY submitted_at LIMIT $1 FOR UPDATE SKIP LOCKED"
    async with world.cluster.session() as session, session.transaction():
        rows = await session.fetch(select, _WORKFLOWS)
        with world.recorded(fault.kind, fault.target, held=[str(row["id"]) for row in rows]):
            await asyncio.sleep(fault.seconds)


async def _fail_topics(world: World, fault: Fault) -> None:
    operator = world.operator
    await asyncio.gather(*(operator.limit(topic, running=_LIMIT) for topic in _TOPICS))
    try:
        async with world.cluster.session() as session:
            await session.execute(_FAIL.replace("{{topics}}", "{" + ",".join(_TOPICS) + "}"))
        with world.recorded(fault.kind, fault.target, held=list(_TOPICS)):
            for topic in _TOPICS:
                key = f"crowd-{fault.how['number']}-{topic}"
                errands = [Errand(f"{key}-{place}") for place in range(_JOBS)]
                await enqueue(world, operator.door(), topic, errands, max_attempts=20)
            await asyncio.sleep(fault.seconds)
    finally:
        await asyncio.shield(world.cluster.execute_surely(_FAIL_NO_MORE))
        for topic in _TOPICS:
            while not await operator.limit(topic, running="default"):  # noqa: ASYNC110
                await asyncio.sleep(_AGAIN_SECONDS)


KINDS = [
    Kind(CROWD_OF_SCHEDULES, _schedules, _lock_schedules, 1, _RETURN_SECONDS),
    Kind(CROWD_OF_WORKFLOWS, _workflows, _lock_workflows, 1),
    Kind(CROWD_OF_TOPICS, _topics, _fail_topics, 1, _RETURN_SECONDS),
]
