"""A whole pulsed whose embedded Postgres is killed: its jobs go on, or it ends with a sentence."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

import pulse
from pulse_server.embedded.cluster import read_postmaster
from tests.embedded.observation import run_sql
from tests.server.pulsed_process import pulsed


def postmaster(directory: Path) -> int:
    server = read_postmaster(directory / "postgres")
    assert server is not None
    return server.pid


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_jobs_go_on_after_the_embedded_postgres_was_killed(directory: Path, processes: str) -> None:
    data = {"PULSE_DATA_DIR": str(directory), "PULSE_PROCESSES": processes}
    async with pulsed("", **data) as server, pulse.Pulse(server.address) as p:
        address = next(line["address"] for line in server.events if line["event"] == "postgres_started")
        before = await p.enqueue("mail", {"number": 1})
        os.kill(postmaster(directory), signal.SIGKILL)
        await server.wait_for("postgres_restarted")
        after = await p.enqueue("mail", {"number": 2})
        assert {job.id async for job in p.iter_jobs(topic="mail")} == {before.id, after.id}
        count = await asyncio.to_thread(run_sql, address, "SELECT count(*) FROM pulse.jobs")
        assert count == 2
        server.signal()
        assert await server.ended() == 0


async def test_pulsed_whose_data_is_gone_ends_with_a_sentence(directory: Path) -> None:
    async with pulsed("", PULSE_DATA_DIR=str(directory)) as server:
        killed = postmaster(directory)
        (directory / "postgres").rename(directory / "aside")
        os.kill(killed, signal.SIGKILL)
        await server.wait_for("postgres_given_up")
        assert await server.ended() == 1
        assert "pulsed: The embedded Postgres ended and cannot be started again" in server.log
