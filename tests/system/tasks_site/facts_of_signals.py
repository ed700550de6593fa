"""Facts about the signals of Django's tasks. `test_django_tasks` runs them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import django
import pytest

django.setup()

from pulse.django.clients import client  # noqa: E402
from pulse.django.tasks_backend import base, signals  # noqa: E402
from tests.system.tasks_site import tasks  # noqa: E402
from tests.system.tasks_site.worker import finished, running_worker  # noqa: E402

READY, FAILED, SUCCESSFUL = (base.TaskResultStatus[name] for name in ("READY", "FAILED", "SUCCESSFUL"))


@pytest.fixture(scope="module", autouse=True)
def worker() -> Iterator[None]:
    with running_worker():
        yield


@pytest.fixture
def sent() -> Iterator[list[tuple[str, Any]]]:
    """The signals that were sent, with the status of their task."""
    seen: list[tuple[str, Any]] = []

    def receiver(name: str) -> Any:
        return lambda task_result, **_: seen.append((name, task_result.status))

    receivers = {name: receiver(name) for name in ("task_enqueued", "task_started", "task_finished")}
    for name, function in receivers.items():
        getattr(signals, name).connect(function, weak=False)
    yield seen
    for name, function in receivers.items():
        getattr(signals, name).disconnect(function)


def test_signals_tell_of_a_success(sent: list[tuple[str, Any]]) -> None:
    finished(tasks.add.enqueue(1))
    # A worker can start a task before its enqueue has returned.
    assert sorted(sent) == [
        ("task_enqueued", READY),
        ("task_finished", SUCCESSFUL),
        ("task_started", "RUNNING"),
    ]


def test_task_that_is_retried_has_finished_once(sent: list[tuple[str, Any]]) -> None:
    finished(tasks.fail_once.enqueue(fails=2))
    counts = Counter(name for name, _ in sent)
    assert counts == {"task_enqueued": 1, "task_started": 2, "task_finished": 1}
    assert ("task_finished", FAILED) in sent


def test_failing_receiver_does_not_fail_the_task() -> None:
    def fail(**_: Any) -> None:
        raise tasks.Declined("a receiver")

    signals.task_started.connect(fail)
    try:
        assert finished(tasks.send.enqueue("ada")).status == SUCCESSFUL
    finally:
        signals.task_started.disconnect(fail)


def test_job_runs_whatever_its_id_is() -> None:
    """Only a UUIDv7 has a time. The jobs of schedules have UUIDv5, and a caller may choose a UUIDv4."""
    job_id = "ffffffff-ffff-4fff-bfff-ffffffffffff"
    times: list[Any] = []

    def record(task_result: Any, **_: Any) -> None:
        times.append(task_result.enqueued_at)

    signals.task_started.connect(record)
    try:
        client().enqueue_now("default:tests.system.tasks_site.tasks.identify", job_id=job_id)
        assert finished(tasks.identify.get_result(job_id)).return_value[0] == job_id
    finally:
        signals.task_started.disconnect(record)
    assert times == [None]
