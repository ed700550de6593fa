"""`pulse servers`, and ages by the clock of the server."""

import asyncio
from datetime import datetime, timedelta, tzinfo

import asyncpg
import pytest

from pulse_server.base.exposition import installed_version
from tests.cli.command_line import CommandLine
from tools.cli_fields import PLAIN


def test_servers_are_listed_with_those_that_fell_silent(own: CommandLine, own_database: str) -> None:
    async def add_a_dead_server() -> None:
        connection = await asyncpg.connect(own_database)
        await connection.execute(
            "INSERT INTO pulse.servers (id, name, started_at, seen_at) "
            "VALUES (gen_random_uuid(), 'dead:1', now() - interval '2 days', now() - interval '3 minutes')"
        )
        await connection.close()

    asyncio.run(add_a_dead_server())
    dead, alive = own("servers", "-o", "json").json
    assert (dead["name"], dead["workers"]) == ("dead:1", 0)
    assert dead["silent_since"] is not None
    assert (alive["silent_since"], alive["version"]) == (None, installed_version())
    head, dead_row, alive_row = own("servers").out.splitlines()
    assert head.split() == ["SERVER", "ADDRESS", "VERSION", "STARTED", "WORKERS", "STATE"]
    assert "2d ago" in dead_row
    assert "silent for 3m" in dead_row
    assert alive_row.endswith("serving")
    assert len(own("servers", "-o", "plain").rows[0]) == len(PLAIN["`servers`"])
    assert "silent for 3m" in own.screen("servers", columns=60).out


class LateClock(datetime):
    """The clock of a laptop that is an hour behind."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) - timedelta(hours=1)


def test_ages_are_by_the_clock_of_the_server(
    own: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pulse.wire.connection", "pulse.client", "pulse_text.times"):
        monkeypatch.setattr(f"{module}.datetime", LateClock)
    job_id = own("submit", topic).out.strip()
    assert "in 1h" not in own("jobs", "get", job_id).out
    assert "1h" not in own("topics", "--search", topic).out
    (row,) = [line for line in own("jobs", "list", "--topic", topic).out.splitlines() if job_id in line]
    assert "in 1h" not in row
