"""A worker counts the leases of a message from the time that comes with it. It must not be too late."""

from tests.dispatch.fake_claims import claimed
from tests.dispatch.hub_under_test import a_session


async def test_message_is_as_old_as_the_oldest_of_its_claims() -> None:
    """A hand-over that took longer is queued behind a claim that began after it."""
    session = a_session(capacity=10)
    session.assign([claimed("newer", "w1")], claimed_at=20.0)
    session.assign([claimed("older", "w1")], claimed_at=10.0)

    delivery = await anext(session.deliveries())

    assert [job.id for job in delivery.jobs] == ["newer", "older"]
    assert delivery.claimed_at == 10.0


async def test_claims_of_a_later_message_do_not_count() -> None:
    session = a_session(capacity=10, speaks_batches=False)
    session.assign([claimed("newer", "w1")], claimed_at=20.0)
    session.assign([claimed("older", "w1")], claimed_at=10.0)
    deliveries = session.deliveries()

    assert [(await anext(deliveries)).claimed_at for _ in range(2)] == [20.0, 10.0]
