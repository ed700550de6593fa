"""What the server leaves a worker to start a job, and what a worker takes."""

from datetime import timedelta

from pulse import tuning
from pulse_server.jobs.reports import longest_confirmation, rest_of_canceled
from tests.rows import each_row

SECOND = timedelta(seconds=1)


@each_row("lease", [SECOND, 3 * SECOND, 30 * SECOND, 3600 * SECOND])
def test_canceled_job_rests_for_longer_than_any_worker_takes_to_start_it(lease: timedelta) -> None:
    confirmed = min(
        tuning.CONFIRMED_START_LONGEST_SECONDS, tuning.CONFIRMED_START_SHARE * lease.total_seconds()
    )
    latest = max(tuning.START_WITHIN_SECONDS, tuning.CONFIRMED_START_SECONDS, confirmed)

    # A second more: the worker reads its clock, and then calls the handler.
    assert rest_of_canceled(lease).total_seconds() >= latest + 1
    assert longest_confirmation(lease).total_seconds() == confirmed
