"""Progress of handlers that run in a process of their own."""

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


def reports(app: Application, job_id: str) -> list[pb.ProgressReport]:
    """The progress of a job in the heartbeats. Other jobs of the module may have sent some, too."""
    return [
        one
        for request in app.fake.heartbeats
        for one in request.progress
        if request.claims[one.index].job_id == job_id
    ]


def test_last_progress_of_a_process_comes_with_its_failure(app: Application) -> None:
    stored = pb.Progress(fraction=0.1, cursor=b'"before"', attempt=1)
    result = app.run("j1", "progress", {}, attempt=2, progress=stored)

    assert "stopped half-way" in result.error
    assert (result.progress.fraction, result.progress.text) == (0.999, "999 of 1000")
    assert result.progress.cursor == b'["before",999]'


def test_progress_of_a_process_is_sent_while_it_runs(app: Application) -> None:
    app.fake.deliver("j2", topic="progress-until-killed", payload=b"")
    app.fake.until(lambda: reports(app, "j2"))
    app.fake.disowned = {"j2"}

    (report, *_) = reports(app, "j2")
    assert (report.fraction, report.cursor) == (0.5, b'"half"')
