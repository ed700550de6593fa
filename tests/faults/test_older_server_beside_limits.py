"""A server of the release before limits, from git, beside new servers: a rollout under load.

An older server does not start on the new schema; one that runs already goes on until it is replaced.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import pulse
from tests.eventually import eventually
from tests.faults.upgrade.old_release import OldPulsed, OldRelease, ReleaseMissing
from tests.postgres.flow_audit import begin_audit, end_audit
from tests.system.stage import QUICK, Pulsed, Stage, Worker, all_completed, table_of
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

# The last commit whose schema ends with migration 0017.
COMMIT = "29b5ce702191d33c8d6b76ab5aa2cd06408b08ba"
TOPICS = ("plain=work", "governed=work")
SOME = 60
IS_RECORDED = "SELECT count(*) FROM pulse.servers WHERE NOT knows_limits AND seen_at > now() - interval '5 s'"


class Rollout:
    """An old and a new server on one database, with a worker each."""

    stage: Stage
    table: JobsTable
    old: OldPulsed
    new: Pulsed
    at_old: Worker
    at_new: Worker

    async def run_through_both(self, topic: str) -> list[pulse.JobHandle]:
        """Enqueue jobs at both servers, and return once all have completed."""
        jobs: list[pulse.JobHandle] = []
        for server in (self.old, self.new):
            async with pulse.Pulse(server.address) as p:
                jobs += await p.enqueue_many(topic, [Errand(seconds=0.01)] * SOME)
                jobs += [await p.enqueue(topic, Errand()) for _ in range(5)]
        await all_completed(self.table, jobs)
        return jobs

    def workers_of(self, jobs: Sequence[pulse.JobHandle]) -> set[int]:
        """The processes that ran these jobs. Each job ran once."""
        runs = self.stage.by_job(jobs)
        assert {len(starts) for starts in runs.values()} == {1}
        return {start.pid for starts in runs.values() for start in starts}

    async def is_old_one_recorded(self) -> bool:
        return bool(await self.table.connection.fetchval(IS_RECORDED))


@pytest.fixture
async def rollout(empty_database_dsn: str, tmp_path: Path) -> AsyncIterator[Rollout]:
    try:
        release = OldRelease(tmp_path, COMMIT)
    except ReleaseMissing as missing:
        pytest.skip(str(missing))
    rollout = Rollout()
    stage = rollout.stage = Stage(empty_database_dsn, tmp_path)
    try:
        await release.migrate(stage)
        rollout.old = await release.pulsed(stage, 1, QUICK)
        rollout.new = await stage.pulsed(None, "--migrate")
        rollout.table = await table_of(stage.dsn)
        rollout.at_old = await stage.worker(rollout.old.address, *TOPICS)
        rollout.at_new = await stage.worker(rollout.new.address, *TOPICS)
        await eventually(rollout.is_old_one_recorded)
        yield rollout
        await rollout.table.connection.close()
    finally:
        stage.close()


async def test_limit_is_refused_beside_the_older_server_and_plain_topics_go_on(rollout: Rollout) -> None:
    async with pulse.Pulse(rollout.new.address) as p:
        with pytest.raises(pulse.InvalidArgument, match="is of a version that does not know them"):
            await p.set_limits("governed", limit=pulse.Concurrency(1))
        assert rollout.workers_of(await rollout.run_through_both("plain")) <= {
            rollout.at_old.pid,
            rollout.at_new.pid,
        }
        rollout.workers_of(await rollout.run_through_both("governed"))

        rollout.old.signal(signal.SIGTERM)
        assert await rollout.old.ended() == 0
        await p.set_limits("governed", limit=pulse.Concurrency(1))


async def test_older_server_that_thaws_after_the_first_limit_starts_no_job_of_its_topic(
    rollout: Rollout,
) -> None:
    """It was silent for so long that it did not count. Jobs that it is given run under the limit."""
    connection = rollout.table.connection
    rollout.old.signal(signal.SIGSTOP)
    await connection.execute(
        "UPDATE pulse.servers SET seen_at = now() - interval '1 minute' WHERE NOT knows_limits"
    )
    async with pulse.Pulse(rollout.new.address) as p:
        await p.set_limits("governed", limit=pulse.Concurrency(2))
    rollout.old.signal(signal.SIGCONT)

    async def has_thawed() -> bool:
        return rollout.at_old.pid in rollout.workers_of(await rollout.run_through_both("plain"))

    await eventually(has_thawed, "the older server gives jobs to its worker again")
    await begin_audit(connection)

    governed = await rollout.run_through_both("governed")
    plain = await rollout.run_through_both("plain")

    assert rollout.workers_of(governed) == {rollout.at_new.pid}
    rollout.workers_of(plain)
    assert (await end_audit(connection)).most_of_topic("governed") <= 2
