"""Steps, enqueues and workflows of handlers that run in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.sdk.test_sdk_processes import Application


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    application = Application(tmp_path_factory.mktemp("app"))
    yield application
    application.process.terminate()
    assert application.process.wait(20) == 0, application.output.read_text()
    application.fake.stop()


def test_steps_of_a_process_go_over_one_connection(app: Application) -> None:
    calls = len(app.fake.step_calls)
    for job_id in ("j1", "j2"):
        result = app.run(job_id, "steps", {"parts": 3})
        assert result.success, result.error
        assert [app.fake.steps[job_id, f"part#{part}"].value for part in range(3)] == [b"0", b"1", b"2"]
    assert len(app.fake.step_calls) - calls == 6
    assert len(app.fake.step_peers) == 1


def test_async_handler_of_a_process_stores_steps_that_end_together_with_one_call(app: Application) -> None:
    calls = len(app.fake.step_calls)
    result = app.run("j5", "steps-async", {"parts": 3})
    assert result.success, result.error
    assert app.fake.step_calls[calls:] == [["part#0", "part#1", "part#2"]]


def test_process_that_sleeps_is_suspended_behind_its_steps(app: Application) -> None:
    result = app.run("j6", "waits", {})
    assert (result.suspension.step, result.suspension.delay.nanos) == ("sleep", 200_000_000)
    assert ("j6", "first") in app.fake.steps


def test_process_waits_for_any_of_several_signals(app: Application) -> None:
    result = app.run("j7", "waits-for-any", {})
    assert (result.suspension.step, result.suspension.signal) == (
        "approved or rejected",
        "approved\nrejected",
    )
    app.fake.signals["j8"] = ("rejected", b'"too late"')
    result = app.run("j8", "waits-for-any", {})
    assert result.success, result.error


def test_enqueues_of_a_process_go_over_one_connection(app: Application) -> None:
    result = app.run("j3", "enqueues", {"number": 3})
    assert result.success, result.error
    assert len(app.fake.stored) == 3
    assert len(app.fake.submit_peers) == 1


def test_process_reads_its_parents_and_adds_a_job(app: Application) -> None:
    app.fake.parents["j9"] = [
        pb.WorkflowJobView(name=name, topic=name, result=b"2") for name in ("one", "two")
    ]
    result = app.run("j9", "adds", {})
    assert result.success, result.error
    ((job,),) = [request.jobs for request in app.fake.added]
    assert (job.job.topic, job.job.payload, [*job.before]) == ("other", b'{"total":6}', ["last"])


def test_process_that_is_killed_in_a_step_has_stored_those_before(app: Application) -> None:
    result = app.run("j4", "step-too-long", {})
    assert result.timed_out
    assert ("j4", "first") in app.fake.steps
    assert ("j4", "second") not in app.fake.steps
