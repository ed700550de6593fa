"""A server for each test of the transport. Tests of RPCs that the testing kit has run over a kit as well."""

from collections.abc import AsyncIterator

import pytest

from tests.transport.kit_under_test import kit_under_test
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test

OVER_KIT = (
    *("submit", "jobs", "unique", "results", "snoozes", "steps", "signals", "run_policies", "start_within"),
    *("schedules", "schedule_start_within", "schedule_fires", "schedule_names", "schedule_updates"),
    *("prioritize_and_delete", "columns", "many_jobs", "policies", "workflows"),
)
# The kit has no workers on streams, no wait ends by itself, and no answer is lost. One test waits by the
# clock of the machine.
NOT_OVER_KIT = {
    "test_cancel_of_a_running_job_reaches_its_worker_on_the_stream",
    "test_cancel_of_many_stops_the_workers_that_hold_some",
    "test_canceled_workflow_stops_its_jobs_and_starts_no_other",
    "test_retried_job_is_delivered_again_with_attempts_ahead",
    "test_report_whose_answer_was_lost_is_repeated_with_its_result",
    "test_wait_ends_in_time_and_at_once_when_the_workflow_ends",
}
# These read or change the database, stop the app, or use an RPC that the kit does not have.
NEED_A_SERVER = {
    "test_caller_that_stops_half_way_leaves_the_rest_unchanged",
    "test_cancel_by_status_leaves_the_others",
    "test_count_returns_the_number_of_matches",
    "test_declaring_a_schedule_again_is_the_same_schedule",
    "test_deleted_schedule_is_gone_and_its_jobs_are_not",
    "test_export_has_the_results",
    "test_filter_of_several_topics_and_statuses_matches_each",
    "test_fire_that_is_repeated_with_its_id_fires_once",
    "test_fire_under_the_id_of_another_job_is_refused",
    "test_fired_job_without_a_worker_is_canceled_when_its_time_to_start_is_over",
    "test_first_run_follows_from_the_timetable",
    "test_heartbeats_of_a_canceled_job_say_stop",
    "test_heartbeats_within_the_time_limit_are_answered_as_ever",
    "test_job_that_another_caller_has_just_retried_is_skipped",
    "test_job_without_a_worker_is_canceled_when_its_time_to_start_is_over",
    "test_jobs_that_came_after_the_count_are_left_alone",
    "test_jobs_that_wait_for_others_are_counted_apart",
    "test_list_takes_all_filters",
    "test_many_are_deleted_batch_by_batch",
    "test_many_are_prioritized_batch_by_batch",
    "test_moment_that_has_passed_fires_at_once_and_the_schedule_is_gone",
    "test_name_is_redefined_with_replace",
    "test_occurrence_whose_job_was_deleted_does_not_fire_again",
    "test_page_of_heavy_jobs_fits_into_what_a_default_client_receives",
    "test_preview_returns_the_next_fires_and_stores_nothing",
    "test_ready_job_that_a_signal_has_locked_is_not_left_to_the_next_tick",
    "test_refused_job_of_columns_has_the_sentence_that_it_has_alone",
    "test_retry_in_batches_retries_all",
    "test_second_job_is_a_duplicate_of_the_first",
    "test_update_of_the_timetable_starts_from_now",
}
_FILES = {f"test_rpc_{name}" for name in OVER_KIT}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.function.__name__
    is_about_rpcs = metafunc.module.__name__.rpartition(".")[2] in _FILES
    if "server" in metafunc.fixturenames and is_about_rpcs and name not in NOT_OVER_KIT | NEED_A_SERVER:
        metafunc.parametrize("server_kind", ["postgres", "kit"])


@pytest.fixture
def server_kind() -> str:
    """postgres, or kit: without a database."""
    return "postgres"


@pytest.fixture
def server_dsn(server_kind: str, request: pytest.FixtureRequest) -> str | None:
    """The database of the server, if it has one."""
    return None if server_kind == "kit" else str(request.getfixturevalue("database_dsn"))


@pytest.fixture
async def server(server_dsn: str | None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerUnderTest]:
    """A server with a fast promoter, so that retries are promoted promptly."""
    if server_dsn is None:
        yield kit_under_test()
        return
    monkeypatch.setattr("pulse_server.app.PROMOTE_INTERVAL", 0.05 * SECOND)
    async with server_under_test(server_dsn) as running:
        yield running
