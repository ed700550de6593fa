"""The programs and commands of the how-to pages run, and print what the pages say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.cli.serving import serving
from tests.docs.pages import ROOT, Page
from tests.docs.reader import Reader, await_fact
from tests.postgres_cluster import Databases
from tests.sdk.libraries import facts_of
from tests.transport.streaming_worker import wire_duration

HOW_TO = ROOT / "docs" / "how-to"


def follow(page: str, directory: Path, until: Callable[[], None] | None = None, **variables: str) -> None:
    """Do all that the page asks for, in an empty directory. `until` waits for what its worker does."""
    reader = Reader(directory, directory, **variables)
    try:
        for block in Page((HOW_TO / page).resolve()).blocks:
            if block.language != "sql":
                reader.follow(block)
        if until is not None:
            until()
    finally:
        reader.close()


def plugins_alone(*others: str) -> dict[str, str]:
    """Of all plugins of pytest that may be installed, a page needs that of the kit and perhaps others."""
    return {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": ",".join(["pulse.testing.plugin", *others]),
        "PYTHONWARNINGS": "ignore",
    }


def test_idempotent_handlers_make_one_effect(tmp_path: Path, address: str) -> None:
    follow("idempotent-handlers.md", tmp_path, PULSE_ADDR=address)


def test_one_job_of_a_key_waits(tmp_path: Path, address: str) -> None:
    follow("one-job-at-a-time.md", tmp_path, PULSE_ADDR=address)


def test_results_of_the_page_about_results_are_read(tmp_path: Path, address: str) -> None:
    follow("results.md", tmp_path, PULSE_ADDR=address)


def test_workflow_of_the_page_about_workflows_runs(tmp_path: Path, address: str) -> None:
    follow("workflows.md", tmp_path, PULSE_ADDR=address)


def test_steps_of_the_page_about_long_jobs_run_once(tmp_path: Path, address: str) -> None:
    follow("long-jobs.md", tmp_path, PULSE_ADDR=address)


def test_job_of_the_page_about_the_outbox_is_carried(
    tmp_path: Path, address: str, empty_database_dsn: str
) -> None:
    follow("outbox.md", tmp_path, PULSE_ADDR=address, PULSE_OUTBOX_DSN=empty_database_dsn)


def test_job_that_hangs_in_a_process_is_ended(tmp_path: Path, address: str) -> None:
    follow("cpu-bound-jobs-and-time-limits.md", tmp_path, PULSE_ADDR=address)


def test_tests_of_the_page_about_tests_pass(tmp_path: Path, database_dsn: str) -> None:
    follow("test-your-jobs.md", tmp_path, DB_HOST=database_dsn, **plugins_alone("pytest_asyncio.plugin"))


def test_jobs_of_the_page_about_transactions_have_their_rows(
    tmp_path: Path, databases: Databases, template_database: str
) -> None:
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        facts = facts_of(dsn)
        follow(
            "transactions.md",
            tmp_path,
            PULSE_ADDR=address,
            PGHOST=facts["host"],
            PGPORT=facts["port"],
            PGUSER=facts["user"],
            PGPASSWORD=facts["password"],
            PGDATABASE=facts["dbname"],
            DB_HOST=dsn,
            PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
            PYTEST_PLUGINS="pulse.testing.plugin",
        )


def test_job_of_the_django_project_is_retried_and_has_a_result(tmp_path: Path, address: str) -> None:
    follow("django.md", tmp_path, PULSE_ADDR=address, **plugins_alone("pytest_django.plugin"))


def test_tasks_of_the_page_about_tasks_of_django_run(tmp_path: Path, address: str) -> None:
    follow("django-tasks.md", tmp_path, PULSE_ADDR=address)


def test_middleware_and_resources_surround_the_handlers(tmp_path: Path, address: str) -> None:
    follow("middleware-and-resources.md", tmp_path, PULSE_ADDR=address, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_limits_of_the_page_about_limits_hold(tmp_path: Path, address: str) -> None:
    follow("limits-tenants-and-fairness.md", tmp_path, PULSE_ADDR=address)


def test_handlers_of_the_page_about_handlers_run(tmp_path: Path, address: str) -> None:
    expected = [
        *[("render", "COMPLETED", 5, 8)] * 3,  # one of them was snoozed
        ("render", "DEAD_LETTERED", 9, 8),
        *[("send-mail", "COMPLETED", 0, 25)] * 3,
    ]
    with pulse.SyncPulse(address) as p:

        def jobs() -> list[tuple[str, str, int, int]]:
            found = [job for topic in ("render", "send-mail") for job in p.iter_jobs(topic=topic)]
            return sorted((job.topic, job.status.name, job.priority, job.max_attempts) for job in found)

        follow(
            "../handlers.md",
            tmp_path,
            until=lambda: await_fact(lambda: jobs() == expected, lambda: f"the jobs are {jobs()}"),
            PULSE_ADDR=address,
        )


# ---------------------------------------------------------------- a stuck job


@pytest.fixture
def stuck(database_dsn: str) -> Iterator[str]:
    """Where a pulsed serves whose jobs are stuck for every reason that the page knows a command for.

    The jobs are stored in the order in which the page lists them, the newest first.
    """
    with (
        serving(
            database_dsn, PULSE_LEASE_TTL="10m"
        ) as address,  # longer than the test: there are no heartbeats
        pulse.SyncPulse(address) as p,
        grpc.insecure_channel(address) as channel,
    ):
        stub = PulseServiceStub(channel)
        p.enqueue("import-file", {"file": "a.csv"})
        with holding(stub, "importer-1", "import-file"):
            pass  # and now it is gone
        p.enqueue("resize-photo", {"number": 1})
        with holding(stub, "photos-1", "resize-photo"):
            p.enqueue("resize-photo", {"number": 2})
            p.enqueue("make-report")
            p.enqueue("charge-card")
            with holding(stub, "cards-1", "charge-card") as job:
                fail(stub, "cards-1", job, "TimeoutError: the bank does not answer", timedelta(minutes=4))
            p.pause(reason="the mail server is down", topic="send-invoice")
            p.enqueue("send-invoice")
            yield address


@contextmanager
def holding(stub: PulseServiceStub, worker_id: str, topic: str) -> Iterator[pb.JobAssignment]:
    """Be a worker that takes one job and does nothing, for the length of a block."""
    stream = stub.StreamJobs(
        pb.StreamJobsRequest(topics=[topic], worker_id=worker_id, capacity=1), timeout=120
    )
    job = next(message.assignments[0] for message in stream if message.assignments)
    # Once this is answered the server knows that the job has left. What had not, it would take back.
    stub.Heartbeat(pb.HeartbeatRequest(job_id=job.job_id, worker_id=worker_id))
    yield job
    stream.cancel()


def fail(stub: PulseServiceStub, worker_id: str, job: pb.JobAssignment, error: str, wait: timedelta) -> None:
    """Report a failure, and when the job is to be tried again."""
    stub.ReportResult(
        pb.ReportResultRequest(
            job_id=job.job_id,
            attempt=job.attempt,
            worker_id=worker_id,
            error=error,
            retry_after=wire_duration(wait),
        )
    )


def test_reason_why_a_job_is_stuck_is_found_with_the_commands_of_the_page(tmp_path: Path, stuck: str) -> None:
    follow("debug-a-stuck-job.md", tmp_path, PULSE_ADDR=stuck)
