"""The primary is lost under load and its standby promoted: no job is lost, and no healthy lease ends."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from faults.failover import Scene, judge, seconds_to_claim
from tests.server.outage_postgres import CAN_FREEZE, OutagePostgres
from tests.server.replicated_postgres import ReplicatedPostgres, ask, make_template
from tests.system.producer import producing
from tests.system.stage import QUICK, Stage, table_of

pytestmark = pytest.mark.skipif(not CAN_FREEZE, reason="finds the server's processes in /proc")

# Shorter than it takes to leave a frozen primary, which is 5 s: every lease expires meanwhile.
LEASES = QUICK | {"PULSE_LEASE_TTL": "3s"}
JOBS = 30


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "cluster")


@pytest.fixture
async def pair(tmp_path: Path, template: Path) -> AsyncIterator[ReplicatedPostgres]:
    pair = ReplicatedPostgres(tmp_path, template, synchronous=True)
    try:
        await pair.second_is_synchronous()
        yield pair
    finally:
        pair.close()


@pytest.fixture
async def stage(pair: ReplicatedPostgres, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(pair.dsn(pair.first, pair.second), tmp_path)
    yield stage
    stage.close()


async def jobs_on(server: OutagePostgres) -> set[str]:
    return set(await ask(server, "SELECT array_agg(id::text) FROM pulse.all_jobs"))


@pytest.mark.parametrize("failure", ["killed", "frozen"])
async def test_lost_primary_takes_no_acknowledged_job_and_no_healthy_lease_along(
    stage: Stage, pair: ReplicatedPostgres, failure: str
) -> None:
    scene = Scene(stage, LEASES)
    await scene.begin()
    await scene.doom()
    async with producing(*scene.addresses, pause_seconds=0.1) as producer:
        await producer.acknowledged(JOBS)
        (pair.first.kill if failure == "killed" else pair.first.freeze)()
        scene.lose_worker()
        await pair.promote_second()
        promoted_at: datetime = await ask(pair.second, "SELECT clock_timestamp()")
        await producer.acknowledged(JOBS)
        if failure == "frozen":
            pair.first.thaw()  # it still acts as the primary
        await scene.watchdog_is_at_work()
        await producer.acknowledged(JOBS)
    scene.finish()
    table = await table_of(pair.second.dsn)
    verdict = await judge(stage, scene, table, producer.handles)
    await table.connection.close()
    to_claim = await seconds_to_claim(stage, promoted_at)
    print(f"The primary was {failure}: first claim {to_claim:.2f} s after the promotion. {verdict}")
    assert verdict.is_good, verdict
    if failure == "frozen":
        assert await jobs_on(pair.first) < await jobs_on(pair.second), (
            "the old primary has nothing of its own"
        )
