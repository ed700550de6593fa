"""How `pulse_server` starts a pulsed, and the database that it makes for it."""

from __future__ import annotations

import asyncio
import sys

import asyncpg
import pytest

import pulse
from pulse.testing import pulsed
from pulse.testing.pulsed import own_database
from pulse_server.database.urls import read_database_url
from tests.rows import each_row
from tests.sdk.libraries import facts_of


def name_of_database(url: str) -> str:
    async def read() -> str:
        connection = await asyncpg.connect(read_database_url(url).url)
        try:
            return str(await connection.fetchval("SELECT current_database()"))
        finally:
            await connection.close()

    return asyncio.run(read())


def test_database_is_made_wherever_pulsed_could_connect(database_dsn: str) -> None:
    facts = facts_of(database_dsn)
    pairs = " ".join(f"{name}='{value}'" for name, value in facts.items() if value)
    joint = "&" if "?" in database_dsn else "?"
    forms = (database_dsn, f"{database_dsn}{joint}channel_binding=prefer&dbname=postgres", pairs)
    for given in forms:
        with own_database(given) as own:
            name = name_of_database(own)
            assert name.startswith("pulse_test_"), given
            assert name != facts["dbname"], given
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            name_of_database(own)


@each_row("given", ["db", "db:5432", "mysql://db/shop", "postgres://ada:a@b@db/shop"])
def test_db_host_that_pulsed_cannot_read_is_refused_with_the_remedy(given: str) -> None:
    with (
        pytest.raises(pulse.InvalidArgument, match=r"^DB_HOST (must be|has) .* in conftest\.py"),
        own_database(given),
    ):
        pass


def test_pulsed_that_ends_is_reported_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "import sys; sys.exit('the disk is full')"
    monkeypatch.setattr(pulsed, "_COMMAND", (sys.executable, "-c", refused))
    sentence = r"did not start\. Its log:\nthe disk is full"
    with pytest.raises(pulse.PulseError, match=sentence), pulsed._serving({}):
        pass


def test_pulsed_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsed, "_COMMAND", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(pulsed, "_START_SECONDS", 0.0)
    with pytest.raises(pulse.PulseError, match=r"did not start in 0 s\. Its log:"), pulsed._serving({}):
        pass


def test_everything_is_deleted_after_a_worker_ended_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    server = pulsed.Pulsed()
    server.address = "localhost:1"
    cleared: list[bool] = []
    monkeypatch.setattr(server, "_clear", lambda: cleared.append(True))
    with pytest.raises(pulse.InvalidHandler), server.lent():
        server.work(pulse.SyncPulse(), topics=["unknown"])
    assert cleared == [True]
