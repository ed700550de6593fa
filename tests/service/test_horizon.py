"""A session that keeps dead rows from being removed is logged once it is old, then rarely, and at its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulse_server.app import HORIZON_INTERVAL
from pulse_server.base.errors import Unavailable
from pulse_server.base.metrics import Metrics
from pulse_server.views.vitals import Holder, HolderKind, Horizon
from tests.fakes.clock import Seconds

PATIENCE = timedelta(minutes=5)
MINUTE = 60.0
HELD, OVER = "vacuum_held_back", "vacuum_free_again"

SESSION = Holder(
    HolderKind.SESSION,
    xid=700,
    transactions=12,
    dead_rows=34,
    pid=4711,
    name="",
    database="pulse",
    application="psql",
    user="ada",
    state="idle in transaction",
    seconds=1.0,
)
HIDDEN = replace(SESSION, state=None, seconds=None)
SLOT = replace(
    SESSION,
    kind=HolderKind.SLOT,
    pid=None,
    name="old_standby",
    application="",
    user="",
    state="inactive",
    seconds=None,
)


class Holders:
    """Returns the holder that a test has set."""

    def __init__(self) -> None:
        self.holder: Holder | None = None
        self.is_away = False

    async def oldest_holder(self) -> Holder | None:
        if self.is_away:
            raise Unavailable("The database did not answer.")
        return self.holder


class Lookout:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        self._caplog = caplog
        self.clock = Seconds()
        self.repo = Holders()
        self.metrics = Metrics()
        self.horizon = Horizon(
            self.repo.oldest_holder,
            self.metrics,
            interval=HORIZON_INTERVAL,
            patience=PATIENCE,
            clock=self.clock,
        )

    async def looks(self, holder: Holder | None, *, seconds: float | None = None) -> None:
        """Tick once with this holder, of this age if it has one."""
        self.repo.holder = holder if seconds is None or holder is None else replace(holder, seconds=seconds)
        await self.horizon.tick()

    @property
    def logged(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of the last event."""
        return vars(self._caplog.records[-1])


@pytest.fixture
def lookout(caplog: pytest.LogCaptureFixture) -> Lookout:
    return Lookout(caplog)


async def test_holder_older_than_the_patience_is_named_with_all_that_finds_it(lookout: Lookout) -> None:
    await lookout.looks(SESSION, seconds=5 * MINUTE - 15)
    await lookout.looks(SESSION, seconds=5 * MINUTE)

    assert lookout.logged == [HELD]
    assert lookout.facts["levelname"] == "WARNING"
    facts = {
        "holder": "session",
        "pid": 4711,
        "application": "psql",
        "user": "ada",
        "state": "idle in transaction",
        "held_seconds": 300.0,
        "transactions": 12,
        "dead_rows": 34,
    }
    assert lookout.facts.items() >= facts.items()
    assert "pg_terminate_backend(4711)" in lookout.facts["hint"]


async def test_holder_that_ends_in_time_is_not_logged(lookout: Lookout) -> None:
    await lookout.looks(SESSION, seconds=4 * MINUTE)
    await lookout.looks(SESSION, seconds=5 * MINUTE - 1)
    await lookout.looks(None)

    assert lookout.logged == []


async def test_old_transaction_whose_snapshot_is_ever_new_holds_nothing_back(lookout: Lookout) -> None:
    for xid in range(700, 720):
        await lookout.looks(replace(SESSION, xid=xid), seconds=30 * MINUTE)

    assert lookout.logged == []
    assert lookout.metrics.oldest_transaction.read() == {(): 0.0}


async def test_warning_comes_again_only_when_the_holder_is_twice_as_old(lookout: Lookout) -> None:
    for minutes in range(4, 45):
        await lookout.looks(SESSION, seconds=minutes * MINUTE)

    assert lookout.logged == [HELD] * 4, "after 5, 10, 20 and 40 minutes"


async def test_end_is_logged_with_the_duration(lookout: Lookout) -> None:
    await lookout.looks(SESSION, seconds=6 * MINUTE)
    await lookout.looks(SESSION, seconds=7 * MINUTE)
    await lookout.looks(None)
    await lookout.looks(None)

    assert lookout.logged == [HELD, OVER]
    assert lookout.facts["held_seconds"] == 420.0
    assert lookout.facts["pid"] == 4711


async def test_next_holder_in_line_is_named_in_its_turn(lookout: Lookout) -> None:
    other = replace(SESSION, pid=4712, xid=800)
    await lookout.looks(SESSION, seconds=6 * MINUTE)
    await lookout.looks(SESSION, seconds=7 * MINUTE)
    await lookout.looks(other, seconds=6 * MINUTE)
    await lookout.looks(other, seconds=7 * MINUTE)

    assert lookout.logged == [HELD, OVER, HELD]
    assert lookout.facts["pid"] == 4712


async def test_session_without_an_age_is_as_old_as_its_first_observation(lookout: Lookout) -> None:
    await lookout.looks(HIDDEN)
    lookout.clock.advance(5 * MINUTE - 1)
    await lookout.looks(HIDDEN)
    assert lookout.logged == []
    lookout.clock.advance(1)
    await lookout.looks(HIDDEN)

    assert lookout.logged == [HELD]
    assert lookout.facts["held_seconds"] == 300.0
    assert "session of another user" in lookout.facts["hint"]


async def test_unused_slot_is_named(lookout: Lookout) -> None:
    await lookout.looks(SLOT)
    lookout.clock.advance(6 * MINUTE)
    await lookout.looks(SLOT)

    assert lookout.logged == [HELD]
    assert lookout.facts["held_by"] == "old_standby"
    assert "pg_drop_replication_slot('old_standby')" in lookout.facts["hint"]


async def test_standby_whose_queries_end_is_no_holder_however_long_it_is_there(lookout: Lookout) -> None:
    for xid in range(700, 740):
        await lookout.looks(replace(SLOT, xid=xid, pid=99))
        lookout.clock.advance(MINUTE)

    assert lookout.logged == []
    assert lookout.metrics.oldest_transaction.read() == {(): 0.0}


async def test_gauges_have_the_age_in_seconds_and_in_transactions(lookout: Lookout) -> None:
    assert lookout.metrics.oldest_transaction.read() == {(): 0.0}
    await lookout.looks(SESSION, seconds=90.0)
    assert lookout.metrics.oldest_transaction.read() == {(): 0.0}, "its snapshot may be of this moment"
    assert lookout.metrics.horizon.read() == {(): 12}
    await lookout.looks(replace(SESSION, transactions=500), seconds=105.0)
    assert lookout.metrics.oldest_transaction.read() == {(): 105.0}
    assert lookout.metrics.horizon.read() == {(): 500}
    await lookout.looks(None)
    assert lookout.metrics.oldest_transaction.read() == {(): 0.0}
    assert lookout.metrics.horizon.read() == {(): 0.0}


async def test_outage_of_the_database_is_not_taken_for_the_end(lookout: Lookout) -> None:
    await lookout.looks(HIDDEN)
    lookout.repo.is_away = True
    with pytest.raises(Unavailable):
        await lookout.horizon.tick()
    lookout.repo.is_away = False
    lookout.clock.advance(5 * MINUTE)
    await lookout.looks(HIDDEN)

    assert lookout.logged == [HELD]


def test_quote_in_a_name_is_kept_inside_the_remedy() -> None:
    prepared = replace(SESSION, kind=HolderKind.PREPARED, name="it's", pid=None)

    assert "ROLLBACK PREPARED 'it''s'" in prepared.remedy
