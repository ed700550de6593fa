"""Payloads that are leased and not yet sent: bounded for each worker and in all."""

from pulse_server.dispatch.workers import ALL_BYTES, SESSION_BYTES, Backlog, Session, slots_for
from tests.dispatch.fake_claims import claimed


def a_session(worker_id: str, backlog: Backlog) -> Session:
    return Session(worker_id, frozenset({"mail"}), 1000, speaks_batches=True, run_id="", backlog=backlog)


def fill(session: Session, size: int) -> None:
    job = claimed(f"job of {session.worker_id}", session.worker_id)
    session.assign([job._replace(payload=bytes(size))], 0.0)


async def test_session_with_its_share_gets_no_more_until_it_was_sent() -> None:
    woken: list[bool] = []
    session = a_session("w1", Backlog(lambda: woken.append(True)))
    fill(session, SESSION_BYTES)
    assert session.free == 0

    deliveries = session.deliveries()
    await anext(deliveries)
    assert session.free == 0, "it is on its way, and not yet handed over"
    fill(session, 1)
    await anext(deliveries)

    assert session.free > 0
    assert woken


async def test_claim_asks_for_no_more_bytes_than_its_workers_have_room_for() -> None:
    session = a_session("w1", Backlog(lambda: None))
    fill(session, SESSION_BYTES - 1000)

    assert slots_for([session] * 5).most_bytes == 1000


async def test_packed_jobs_fit_into_the_share_of_each_worker() -> None:
    backlog = Backlog(lambda: None)
    slow, quick = a_session("slow", backlog), a_session("quick", backlog)
    fill(slow, SESSION_BYTES - 1000)

    assert slots_for([slow, quick], [slow, slow]).packed_bytes == 1000


async def test_slow_readers_leave_half_of_the_bytes_to_the_rest() -> None:
    backlog = Backlog(lambda: None)
    slow = [a_session(f"slow-{number}", backlog) for number in range(ALL_BYTES // SESSION_BYTES // 2)]
    for session in slow:
        fill(session, SESSION_BYTES)
    newcomer = a_session("w1", backlog)

    assert all(session.free == 0 for session in slow)
    assert newcomer.free > 0
    fill(newcomer, ALL_BYTES)
    assert a_session("w2", backlog).free == 0
    newcomer.take_undelivered()
    assert a_session("w2", backlog).free > 0
