"""A worker counts the leases of a message from the time that comes with it. It must not be too late."""

from pulse_server.dispatch.sessions import Session
from tests.dispatch.fake_claims import claimed


def a_session() -> Session:
    return Session("w1", frozenset({"mail"}), 10, speaks_batches=True)


async def test_message_is_as_old_as_the_oldest_of_its_claims() -> None:
    """A hand-over that took longer is queued behind a claim that began after it."""
    session = a_session()
    session.assign([claimed("newer", "w1")], claimed_at=20.0)
    session.assign([claimed("older", "w1")], claimed_at=10.0)

    parcel = await anext(session.parcels())

    assert [job.id for job in parcel.jobs] == ["newer", "older"]
    assert parcel.claimed_at == 10.0


async def test_claims_of_a_later_message_do_not_count() -> None:
    session = Session("w1", frozenset({"mail"}), 10, speaks_batches=False)
    session.assign([claimed("newer", "w1")], claimed_at=20.0)
    session.assign([claimed("older", "w1")], claimed_at=10.0)
    parcels = session.parcels()

    assert [(await anext(parcels)).claimed_at for _ in range(2)] == [20.0, 10.0]
