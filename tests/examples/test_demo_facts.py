"""What the demo calls a recovery really is one."""

from datetime import UTC, datetime

import pulse
from examples.demo import shop
from examples.demo.acts.recovery import is_recovered
from examples.demo.facts import Tally
from examples.demo.load import trades
from tests.rows import each_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(status: str, worker_id: str, *outcomes: str) -> pulse.JobInfo:
    history = tuple(
        pulse.Attempt(number, "worker A", NOW, NOW, outcome, "error")
        for number, outcome in enumerate(outcomes, start=1)
    )
    return pulse.JobInfo(
        id="01a1dd41-3dad-74a2-92ec-2c1a93b0b1c1",
        status=pulse.JobStatus(status),
        topic="make-video",
        priority=0,
        attempts=len(history) + 1,
        max_attempts=5,
        submitted_at=NOW,
        next_run_at=None,
        started_at=NOW,
        finished_at=NOW,
        lease_until=None,
        worker_id=worker_id,
        last_error=None,
        error_group=None,
        idempotency_key=None,
        schedule_id=None,
        metadata={},
        payload=b"",
        history=history,
    )


def test_job_that_another_worker_completed_after_the_lease_is_recovered() -> None:
    assert is_recovered(job("COMPLETED", "worker B", "lease_expired"), "worker A")


@each_row(
    "other",
    [
        job("DEAD_LETTERED", "worker B", "lease_expired"),
        job("COMPLETED", "worker A", "lease_expired"),
        job("COMPLETED", "worker B"),
        job("COMPLETED", "worker B", "failed"),
    ],
)
def test_job_that_ended_in_any_other_way_is_not_recovered(other: pulse.JobInfo) -> None:
    assert not is_recovered(other, "worker A")


def test_job_that_the_server_does_not_know_any_more_is_missing() -> None:
    tally = Tally(submitted=5, completed=2, retried=1, dead_lettered=1, recovered=0, unfinished=1)
    assert tally.missing == 1


def test_everything_that_the_shop_orders_has_a_worker() -> None:
    p = pulse.Pulse("127.0.0.1:1")
    shop.register_office(p)
    shop.register_media(p)
    ordered = {order.topic for _, orders in trades() for order in next(orders)}
    assert ordered <= set(p.handled_topics)
