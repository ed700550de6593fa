"""Claims that other servers report as ended: each is looked up before a handler is stopped. ADR-0084"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.claims import Reconciler
from pulse_server.jobs.rules import Claim
from pulse_server.wakeups.watchers import Wakeup
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import HubUnderTest, a_session


class LookedUp(FakeClaims):
    """Keeps the claims of each look-up."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[list[Claim]] = []
        self.is_away = False
        self.under_way = 0

    async def still_held(self, claims: Sequence[Claim]) -> set[Claim]:
        self.looks.append(list(claims))
        self.under_way += 1
        assert self.under_way == 1, "one look-up at a time"
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.is_away:
            raise Unavailable("The database is away.")
        return await super().still_held(claims)


@pytest.fixture
def claims() -> LookedUp:
    return LookedUp()


@pytest.fixture
def server(claims: LookedUp) -> HubUnderTest:
    return HubUnderTest(claims)


def reconciler_of(server: HubUnderTest) -> Reconciler:
    return server.hub._reconciler


def held(*job_ids: str) -> list[Claim]:
    return [Claim(job_id, "w1", 1, 1) for job_id in job_ids]


async def test_forged_end_stops_no_handler(
    server: HubUnderTest, claims: LookedUp, caplog: pytest.LogCaptureFixture
) -> None:
    session = a_session(capacity=2)
    ended, running = held("ended", "running")
    server.hub.connect(session, [ended, running])
    claims.gone.add(ended)
    server.line.deliver(Wakeup(ended=(ended, running)))
    assert list(session.held) == ["ended", "running"], "nothing is stopped before the look-up"

    await reconciler_of(server).look_up_reported()

    assert list(session.held) == ["running"]
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "ended_claims_hold"
    ]


async def test_forged_lapse_puts_no_worker_on_probation(server: HubUnderTest, claims: LookedUp) -> None:
    session = a_session(capacity=3)
    (running,) = held("running")
    server.hub.connect(session, [running])
    server.line.deliver(Wakeup(lapsed=(running,)))
    await reconciler_of(server).look_up_reported()
    assert (session.is_on_probation, session.free) == (False, 2)

    claims.gone.add(running)
    reconciler_of(server)._rest_until = 0.0
    server.line.deliver(Wakeup(lapsed=(running,)))
    await reconciler_of(server).look_up_reported()
    assert (session.is_on_probation, session.free) == (True, 1)


async def test_only_claims_of_workers_here_are_looked_up_and_each_once(
    server: HubUnderTest, claims: LookedUp
) -> None:
    server.hub.connect(a_session(), [running := held("running")[0]])

    for _ in range(3):
        server.line.deliver(Wakeup(ended=(*held("elsewhere"), running._replace(run=2), running)))
    await reconciler_of(server).look_up_reported()

    assert claims.looks == [[running]]


async def test_many_claims_are_looked_up_in_slices_one_at_a_time(
    server: HubUnderTest, claims: LookedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.claims.REPORTED_CLAIMS", 10)
    many = held(*map(str, range(25)))
    session = a_session(capacity=25)
    server.hub.connect(session, many)
    claims.gone.update(many)

    server.line.deliver(Wakeup(ended=tuple(many)))
    await reconciler_of(server).look_up_reported()

    assert [len(look) for look in claims.looks] == [10, 10, 5]
    assert not session.held


async def test_claims_that_the_database_did_not_answer_for_are_looked_up_again(
    server: HubUnderTest, claims: LookedUp
) -> None:
    session = a_session()
    (ended,) = held("ended")
    server.hub.connect(session, [ended])
    claims.gone.add(ended)
    claims.is_away = True
    server.line.deliver(Wakeup(ended=(ended,)))
    with pytest.raises(Unavailable):
        await reconciler_of(server).look_up_reported()
    assert list(session.held) == ["ended"]

    claims.is_away = False
    await reconciler_of(server).look_up_reported()

    assert not session.held


async def test_after_a_false_report_the_database_gets_a_pause(
    server: HubUnderTest, claims: LookedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.claims.REPORTED_PAUSE", timedelta(hours=1))
    (running,) = held("running")
    server.hub.connect(a_session(), [running])
    server.line.deliver(Wakeup(ended=(running,)))
    await reconciler_of(server).look_up_reported()

    server.line.deliver(Wakeup(ended=(running,)))
    flood = asyncio.create_task(reconciler_of(server).look_up_reported())
    for _ in range(100):
        server.line.deliver(Wakeup(ended=(running,)))
        await asyncio.sleep(0)

    assert len(claims.looks) == 1
    flood.cancel()
