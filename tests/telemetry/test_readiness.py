"""Whether a server is ready, and why not, whatever its database does."""

from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.doors.http import Readiness
from tests.fakes.clock import Seconds
from tests.fakes.replica import Replica

SECOND = timedelta(seconds=1)


class Probed:
    """A server whose database and schema are as the test says."""

    def __init__(self) -> None:
        self.clock = Seconds()
        self.database_error: Exception | None = None
        self.schema_error: Exception | None = None
        self.pings = 0
        self.schema_checks = 0
        self.gate = Replica().gate
        self.verdicts: list[bool] = []
        self.readiness = Readiness(
            self._ping,
            self._check_schema,
            lambda: self.gate.is_primed,
            changed=self.verdicts.append,
            interval=2 * SECOND,
            schema_interval=30 * SECOND,
            clock=self.clock,
        )

    async def start(self) -> None:
        await self.gate.refresh()
        await self.readiness.tick()
        self.readiness.serve()

    def reasons(self) -> dict[str, str]:
        return {check.name: check.why for check in self.readiness.checks if not check.ok}

    async def _ping(self) -> None:
        self.pings += 1
        if self.database_error:
            raise self.database_error

    async def _check_schema(self) -> None:
        self.schema_checks += 1
        if self.schema_error:
            raise self.schema_error


@pytest.fixture
def probed() -> Probed:
    return Probed()


def test_nothing_is_known_at_first(probed: Probed) -> None:
    assert not probed.readiness.is_ready
    assert probed.reasons().keys() == {"database", "schema", "gate", "serving"}


async def test_server_is_ready_once_it_serves_and_all_is_well(probed: Probed) -> None:
    await probed.readiness.tick()
    assert probed.reasons().keys() == {"gate", "serving"}
    await probed.gate.refresh()
    assert probed.reasons().keys() == {"serving"}
    probed.readiness.serve()

    assert probed.readiness.is_ready
    assert probed.verdicts == [False, True]


async def test_database_that_goes_away_is_reported_with_the_reason(probed: Probed) -> None:
    await probed.start()
    probed.database_error = Unavailable("The database did not answer (ping).")
    await probed.readiness.tick()

    assert probed.reasons() == {"database": "The database did not answer (ping)."}


async def test_server_is_ready_again_once_the_database_is_back(probed: Probed) -> None:
    await probed.start()
    probed.database_error = Unavailable("away")
    await probed.readiness.tick()
    probed.database_error = None
    await probed.readiness.tick()

    assert probed.verdicts == [False, True, False, True]


async def test_schema_is_looked_at_now_and_then_only(probed: Probed) -> None:
    await probed.start()
    for _ in range(14):
        probed.clock.advance(2)
        await probed.readiness.tick()
    assert (probed.pings, probed.schema_checks) == (15, 1)
    probed.clock.advance(2)
    await probed.readiness.tick()

    assert probed.schema_checks == 2


async def test_schema_of_a_database_that_came_back_is_looked_at_at_once(probed: Probed) -> None:
    await probed.start()
    probed.database_error = Unavailable("away")
    await probed.readiness.tick()
    probed.database_error, probed.schema_error = None, Unavailable("The database lacks 0001_schema.")
    await probed.readiness.tick()

    assert probed.reasons() == {"schema": "The database lacks 0001_schema."}


async def test_server_is_not_ready_while_the_schema_of_a_database_that_came_back_is_looked_at(
    probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await probed.start()
    probed.database_error = Unavailable("away")
    await probed.readiness.tick()
    probed.database_error = None
    seen: list[bool] = []

    async def look() -> None:
        seen.append(probed.readiness.is_ready)

    monkeypatch.setattr(probed.readiness, "_check_schema", look)
    await probed.readiness.tick()

    assert seen == [False]
    assert probed.readiness.is_ready


async def test_schema_that_was_wrong_is_looked_at_each_time(probed: Probed) -> None:
    probed.schema_error = Unavailable("wrong")
    await probed.start()
    probed.schema_error = None
    await probed.readiness.tick()

    assert probed.readiness.is_ready


async def test_schema_is_not_asked_for_while_the_database_is_away(probed: Probed) -> None:
    probed.database_error = Unavailable("away")
    await probed.readiness.tick()

    assert probed.schema_checks == 0


async def test_draining_server_is_not_ready_in_any_state_of_the_database(probed: Probed) -> None:
    await probed.start()
    probed.readiness.drain()
    await probed.readiness.tick()

    assert probed.reasons() == {"serving": "The server is draining."}
    assert probed.verdicts == [False, True, False]


async def test_bug_in_a_check_is_not_ready_and_reveals_nothing(probed: Probed) -> None:
    await probed.start()
    probed.database_error = RuntimeError("password=hunter2")
    await probed.readiness.tick()

    assert probed.reasons().keys() == {"database"}
    assert probed.reasons()["database"] == "Internal error. The log of the server has the details."
