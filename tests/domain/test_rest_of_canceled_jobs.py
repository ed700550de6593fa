"""What the server leaves a worker to start a job, and what a worker takes."""

from pulse import tuning
from tests.fakes.backoff import CANCELED_REST


def test_canceled_job_rests_for_longer_than_any_worker_takes_to_start_it() -> None:
    latest = max(tuning.START_WITHIN_SECONDS, tuning.CONFIRMED_START_SECONDS)

    # Twice as long: the worker reads its clock, and then calls the handler.
    assert CANCELED_REST.total_seconds() >= 2 * latest
