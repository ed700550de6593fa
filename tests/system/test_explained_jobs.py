"""One stuck job per cause: `pulse jobs explain`, `jobs get`, `jobs list` and its page name each."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.cli.command_line import CommandLine
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.staged_waits import SETTINGS, staged
from tests.transport.test_rpc_explain import WORDS, explain
from tests.ui.dashboards import dashboard_under_test
from tests.ui.visitors import Visitor


async def test_cli_and_page_name_the_cause_of_each_stuck_job(
    cluster_dsn: str, database_dsn: str, tmp_path: Path
) -> None:
    async with (
        server_under_test(database_dsn, **SETTINGS) as server,
        staged(server) as stage,
        dashboard_under_test(server.address) as dashboard,
    ):
        stopped = {cause: job_id for cause, job_id in stage.jobs.items() if cause != "running"}

        async def is_counted() -> bool:
            (item,) = await explain(server, job_ids=[stopped["workers_full"]])
            return item.cause == "workers_full"

        await eventually(is_counted)  # the held jobs are cached for a second
        command = CommandLine(tmp_path, {"PULSE_ADDR": server.address})
        visitor = Visitor(dashboard.url)
        listed = (await asyncio.to_thread(command, "jobs", "list", "--limit", "200")).out
        for cause, job_id in stopped.items():
            sentence, remedy, brief = WORDS[cause]
            shown = await asyncio.to_thread(command, "jobs", "explain", job_id)
            assert shown.out.startswith(f"{job_id}  {cause}\n")
            assert sentence in shown.out, cause
            assert remedy in shown.out, cause
            as_json = await asyncio.to_thread(command, "jobs", "explain", job_id, "--output", "json")
            assert as_json.json["cause"] == cause
            (line,) = [line for line in listed.splitlines() if line.startswith(job_id)]
            assert brief in line, cause
            described = (await asyncio.to_thread(command, "jobs", "get", job_id)).out
            page = html.unescape((await visitor.get(f"/jobs/{job_id}")).text)
            counted = "waits for 1 of 1: extract"
            assert (counted if cause == "waits_for_jobs" else sentence) in described, cause
            assert sentence in page, cause
            assert remedy in page, cause
        searched = (await asyncio.to_thread(command, "jobs", "find", "invoices")).out
        assert "topic paused" in searched
        topic = await asyncio.to_thread(command, "topics", "explain", "invoices")
        assert "The topic has been paused since" in topic.out

        async def are_shown(job_id: str, sentence: str, brief: str, remedy: str) -> None:
            assert sentence in (await asyncio.to_thread(command, "jobs", "explain", job_id)).out
            listed = (await asyncio.to_thread(command, "jobs", "list", "--limit", "200")).out
            (line,) = [line for line in listed.splitlines() if line.startswith(job_id)]
            assert brief in line
            page = html.unescape((await visitor.get(f"/jobs/{job_id}")).text)
            assert sentence in page
            assert remedy in page

        await server.stub.PauseDispatch(pb.PauseDispatchRequest(reason="a move"))
        ready = stopped["workers_full"]
        await are_shown(
            ready, "All dispatch has been paused since", "everything paused", "pulse dispatch resume"
        )

        async with database_away(cluster_dsn, database_dsn):
            away = await asyncio.to_thread(command, "jobs", "explain", ready)
            assert (away.code, "The database" in away.err) == (5, True), away.err
            assert "The database is unavailable" in (await visitor.get(f"/jobs/{ready}")).text


@asynccontextmanager
async def database_away(cluster_dsn: str, database_dsn: str) -> AsyncIterator[None]:
    """Disconnect the server from its database, and let it connect again afterwards."""
    name = urlsplit(database_dsn).path.removeprefix("/")
    operator = await asyncpg.connect(cluster_dsn)
    await operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    try:
        # Connections of the test have no name.
        await operator.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = $1 AND application_name <> ''""",
            name,
        )
        yield
    finally:
        await operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await operator.close()


async def test_role_that_may_not_ask_sees_the_state_as_before(
    monkeypatch: pytest.MonkeyPatch, server: ServerUnderTest, tmp_path: Path
) -> None:
    job_id = await server.submit("mail")
    command = CommandLine(tmp_path, {"PULSE_ADDR": server.address})
    for refusal in (pulse.PermissionDenied("no"), pulse.PulseError("The server does not know this call.")):

        def refuse(*_: object, error: Exception = refusal) -> None:
            raise error

        monkeypatch.setattr(pulse.SyncPulse, "explain_jobs", refuse)
        assert "waits for a worker" in (await asyncio.to_thread(command, "jobs", "list")).out
        assert "waits for a worker" in (await asyncio.to_thread(command, "jobs", "get", job_id)).out


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn) as running:
        yield running
