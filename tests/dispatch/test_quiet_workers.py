"""Workers that an operator has quieted or stops: dispatch gives them no jobs, whatever their client knows."""

from __future__ import annotations

import pytest

from pulse_server.jobs.rules import Claim
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import HubUnderTest, a_session, job_ids, next_delivery, running
from tests.eventually import eventually


@pytest.fixture
def server(claims: FakeClaims) -> HubUnderTest:
    return HubUnderTest(claims)


async def order(server: HubUnderTest, state: str, run_id: str = "") -> None:
    """Order the worker w1 to be so. Nothing is announced: the gate reads it."""
    await server.switches.set_worker_state("w1", {run_id: state}, "memory grows")
    await server.gate.refresh()


@pytest.mark.parametrize("speaks_batches", [True, False], ids=["batches", "original contract"])
async def test_quiet_worker_gets_no_job_until_it_is_resumed(
    server: HubUnderTest, speaks_batches: bool
) -> None:
    quiet, other = a_session("w1", speaks_batches=speaks_batches), a_session("w2", capacity=1)
    server.hub.connect(quiet, [])
    server.hub.connect(other, [])
    await order(server, "quiet")
    assert (quiet.free, quiet.free_to_run) == (0, 0)
    server.claims.add_jobs("mail", "first", "second")
    with running(server.hub):
        assert await job_ids(other.deliveries()) == ["first"]
        assert not quiet.held
        await server.switches.resume_worker("w1")
        await server.gate.refresh()
        await eventually(lambda: quiet.held.keys() == {"second"})


async def test_quiet_worker_keeps_what_it_may_have_started_and_is_asked_for_the_rest(
    server: HubUnderTest,
) -> None:
    session = a_session("w1", capacity=3)
    server.hub.connect(session, [])
    server.claims.add_jobs("mail", "sent")
    with running(server.hub):
        deliveries = session.deliveries()
        assert await job_ids(deliveries) == ["sent"]
        server.claims.add_jobs("mail", "waits")
        server.hub.roster.wake({"mail"})
        await eventually(lambda: "waits" in session.held)
        await order(server, "quiet")
        delivery = await next_delivery(deliveries)
        await eventually(lambda: server.claims.released)
    assert (delivery.jobs, delivery.recalled, delivery.stops_worker) == ((), frozenset(), False)
    assert server.claims.released == [Claim("waits", "w1", 1, 1)]
    assert set(session.held) == set(server.hub.roster.held_jobs) == {"sent"}


async def test_job_whose_claim_was_under_way_is_released(server: HubUnderTest) -> None:
    server.claims.add_jobs("mail", "j1")
    server.claims.may_answer.clear()
    session = a_session("w1")
    server.hub.connect(session, [])
    with running(server.hub):
        await server.claims.wait_for_calls(1)
        await order(server, "quiet")
        server.claims.may_answer.set()
        await eventually(lambda: server.claims.released)
    assert server.claims.released == [Claim("j1", "w1", 1, 1)]
    assert not session.held


async def test_process_that_connects_again_is_as_quiet_and_another_of_its_name_is_not(
    server: HubUnderTest,
) -> None:
    await order(server, "quiet", run_id="run-1")
    again = a_session("w1", run_id="run-1")
    server.hub.connect(again, [Claim("unstarted", "w1", 1, 1)])
    assert again.free == 0
    assert (await next_delivery(again.deliveries())).recalled == frozenset(), "what it has not started"
    server.hub.disconnect(again)
    new = a_session("w1", run_id="run-2")
    server.hub.connect(new, [])
    assert new.free == 2


async def test_worker_is_asked_once_in_a_stream_to_stop_and_gets_no_job(server: HubUnderTest) -> None:
    session = a_session("w1")
    server.hub.connect(session, [])
    await order(server, "quiet")
    deliveries = session.deliveries()
    assert not (await next_delivery(deliveries)).stops_worker
    await order(server, "stopping")
    assert (await next_delivery(deliveries)).stops_worker
    assert session.free == 0
    server.hub.roster.stop_claims([])
    session.close()
    last = await next_delivery(deliveries)
    assert (last.stops_worker, last.is_last) == (False, True)
    server.hub.disconnect(session)
    again = a_session("w1")
    server.hub.connect(again, [])
    assert (await next_delivery(again.deliveries())).stops_worker, "the stream may have ended before it"
