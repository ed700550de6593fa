"""Which worker holds which job, as this server has it: what claims, reports and lost leases change."""

import pytest

from pulse_server.dispatch.workers import SESSION_BYTES
from pulse_server.jobs.rules import Claim, ClaimedJob
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import a_hub, a_session, job_ids, next_delivery, running
from tests.rows import each_row


async def test_stop_takes_a_job_out_of_the_line_that_was_not_sent(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.connect(session, [])
    claims.add_jobs("mail", "job", "other")
    with running(hub):
        await claims.wait_for_calls(1)
        deliveries = session.deliveries()
        hub.roster.stop_claims([Claim("job", "w1", 1, 1)])
        assert (await next_delivery(deliveries)).jobs[0].id == "other"


async def test_stop_of_another_attempt_is_not_for_this_worker(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=1)
    hub.connect(session, [Claim("job", "w1", 2, 2)])
    hub.roster.stop_claims([Claim("job", "w1", 1, 1), Claim("job", "w2", 2, 2)])
    assert list(session.held) == ["job"]
    hub.roster.stop_claims([Claim("job", "w1", 2, 2)])
    assert session.held == {}
    assert (await next_delivery(session.deliveries())).stops == (Claim("job", "w1", 2, 2),)


@pytest.mark.parametrize("worker_id", ["w1", ""], ids=["by name", "original contract"])
async def test_worker_that_let_a_lease_lapse_gets_one_job_at_a_time_until_it_answers(
    claims: FakeClaims, worker_id: str
) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=3)
    hub.connect(session, [Claim("silent", "w1", 1, 1), Claim("probe", "w1", 1, 1)])
    hub.roster.expire_claims([Claim("silent", "w1", 1, 1)])
    assert session.free == 0, "it holds one already"
    hub.roster.settle([Claim("probe", "w1", 1, 1)])
    assert session.free == 1, "that its job ended elsewhere says nothing about it"
    hub.connect(other := a_session("w2"), [Claim("other", "w2", 1, 1)])
    hub.roster.answered("w2", [Claim("other", "w2", 1, 1)])
    assert (session.free, other.free) == (1, 2)
    session.held["again"] = 1
    hub.roster.answered(worker_id, [])
    assert session.free == (2 if worker_id else 0)


async def test_report_of_the_probe_ends_the_probation_of_an_original_worker(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=3, speaks_batches=False)
    hub.connect(session, [Claim("silent", "w1", 1, 1), Claim("probe", "w1", 1, 1)])
    hub.roster.expire_claims([Claim("silent", "w1", 1, 1)])
    hub.roster.answered("", [Claim("probe", None, None)])
    assert session.free == 3


async def test_canceled_job_puts_no_worker_on_probation(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=3)
    hub.connect(session, [Claim("job", "w1", 1, 1)])
    hub.roster.stop_claims([Claim("job", "w1", 1, 1)])
    assert session.free == 3


async def test_reconcile_frees_the_slot_of_a_job_reported_elsewhere(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=2)
    gone, held = Claim("gone", "w1", 1, 1), Claim("held", "w1", 1, 1)
    hub.connect(session, [gone, held])
    claims.gone.add(gone)
    await hub._reconciler.reconcile()
    assert session.free == 0, "a claim may be too young for the database to know of its end"
    await hub._reconciler.reconcile()
    assert list(session.held) == ["held"]


async def test_reconcile_frees_slots_though_two_sessions_count_on_the_job(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    lost, holder = a_session("lost", capacity=1), a_session("holder", capacity=1)
    hub.connect(holder, [Claim("job", "holder", 2, 2)])
    hub.connect(lost, [Claim("job", "lost", 1, 1)])
    claims.gone |= {Claim("job", "lost", 1, 1), Claim("job", "holder", 2, 2)}
    await hub._reconciler.reconcile()
    await hub._reconciler.reconcile()
    assert (lost.free, holder.free) == (1, 1)


async def test_report_without_worker_and_attempt_settles_the_job(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=1, speaks_batches=False)
    hub.connect(session, [Claim("job", "w1", 1, 1)])
    hub.roster.settle([Claim("job", None, None)])
    assert session.free == 1


async def test_original_worker_gets_one_job_per_delivery(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=100, speaks_batches=False)
    hub.connect(session, [])
    claims.add_jobs("mail", "a", "b")
    with running(hub):
        deliveries = session.deliveries()
        assert [await job_ids(deliveries), await job_ids(deliveries)] == [["a"], ["b"]]


async def test_resize_counts_for_every_stream_that_names_its_capacity(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    new, old = a_session("w", capacity=1), a_session("w", "image", capacity=100, speaks_batches=False)
    hub.connect(new, [])
    hub.connect(old, [])
    hub.roster.resize("w", 7)
    assert (new.capacity, old.capacity) == (7, 100)


async def test_batch_of_a_worker_frees_its_own_slots_and_no_others(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.connect(session := a_session(capacity=9), [Claim(f"own-{number}", "w1", 1, 1) for number in range(3)])
    hub.connect(other := a_session("w2", capacity=9), [Claim("other", "w2", 1, 1), Claim("both", "w2", 1, 1)])
    hub.connect(third := a_session("w3", capacity=9), [Claim("both", "w3", 2, 2)])

    hub.roster.answered(
        "w1",
        [
            Claim("own-0", "w1", 1, 1),
            Claim("own-1", "w1", 2, 2),  # another attempt
            Claim("own-2", "w1", 1, 1),
            Claim("other", "w1", 1, 1),  # of another worker
            Claim("unknown", "w1", 1, 1),
        ],
    )
    hub.roster.answered("w3", [Claim("both", "w3", 2, 2)])

    assert list(session.held) == ["own-1"]
    assert list(other.held) == ["other", "both"]
    assert third.held == {}
    assert set(hub.roster.held_jobs) == {"own-1", "other", "both"}


@each_row("state", ["usual", "frozen", "unread", "closing"])
async def test_free_slots_that_other_servers_compute_are_those_of_the_session(state: str) -> None:
    """By the row of the worker, which has its hindrance in a word."""
    hub = a_hub(FakeClaims())
    session = a_session(capacity=10, concurrency=2)
    hub.connect(session, [Claim("held", "w1", 1, 1)])
    if state == "frozen":
        session.put_on_probation()
    elif state == "unread":
        large = ClaimedJob("large", "mail", bytes(SESSION_BYTES), 1, 1, 0, 5, None, None, "w1", False, 0.0)
        session.assign([large], 0)
    elif state == "closing":
        session.close()

    (worker,) = hub.roster.connected()

    assert worker.hindrance == ("" if state == "usual" else state)
    assert max(0, worker.slots(that_run=False) - len(session.held)) == session.free
    assert max(0, worker.slots(that_run=True) - len(session.held)) == session.free_to_run
