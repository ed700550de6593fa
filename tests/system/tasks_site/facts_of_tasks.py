"""Facts about the backend for Django's tasks. `test_django_tasks` runs them."""

import asyncio
import importlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import django
import pytest

django.setup()

from django.db import transaction  # noqa: E402
from django.test import override_settings  # noqa: E402
from django.utils import timezone  # noqa: E402

import pulse  # noqa: E402
from pulse.django.clients import client  # noqa: E402
from pulse.django.tasks_backend import (  # noqa: E402
    HANDLER_OPTIONS,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    base,
)
from pulse.handlers.handler import JobOptions  # noqa: E402
from tests.system.tasks_site import tasks  # noqa: E402
from tests.system.tasks_site.worker import finished, running_worker  # noqa: E402

READY, FAILED, SUCCESSFUL = (base.TaskResultStatus[name] for name in ("READY", "FAILED", "SUCCESSFUL"))
LATER = timedelta(days=1)


@pytest.fixture(scope="module", autouse=True)
def worker() -> Iterator[None]:
    with running_worker():
        yield


def later(task: Any) -> Any:
    """Return the task with a start time that no test waits for."""
    return task.using(run_after=timezone.now() + LATER)


def test_task_is_a_job_on_the_topic_of_its_queue() -> None:
    result = later(tasks.send).enqueue("ada")
    job = client().get_job(result.id)
    assert (job.topic, job.priority) == ("mail:tests.system.tasks_site.tasks.send", 7)
    assert job.args == {"args": ["ada"], "kwargs": {}}
    assert job.max_attempts == 1
    assert result.status == READY
    assert result.attempts == 0


def test_result_that_is_read_equals_the_one_that_was_enqueued() -> None:
    task = tasks.add.using(run_after=timezone.now() + LATER, priority=-3, queue_name="mail")
    result = task.enqueue(1, second=2)
    assert task.get_result(result.id) == result


def test_return_value_is_read() -> None:
    result = finished(tasks.add.enqueue(1, second=2))
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 3, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert len(result.worker_ids) == 1
    assert result.worker_ids[0]


def test_async_task_runs() -> None:
    assert finished(tasks.send.enqueue("ada")).return_value == ["sent", "ada"]


def test_async_code_enqueues_and_reads() -> None:
    async def enqueue_and_read() -> Any:
        result = await tasks.add.aenqueue(2)
        while not result.is_finished:
            await result.arefresh()
        return await tasks.add.aget_result(result.id)

    assert asyncio.run(enqueue_and_read()).return_value == 2


def test_task_takes_its_context() -> None:
    result = finished(tasks.identify.enqueue(card="7"))
    assert result.return_value == [result.id, 1, [], {"card": "7"}, "RUNNING", 1]


def test_task_with_process_runs_in_a_child() -> None:
    assert finished(tasks.add_elsewhere.enqueue(1, 2)).return_value == 3


def test_error_has_its_class_and_traceback() -> None:
    result = finished(tasks.decline.enqueue("a card"))
    assert result.status == FAILED
    error = result.errors[0]
    assert error.exception_class is tasks.Declined
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("Declined: a card was declined\n")
    assert 'raise Declined(f"{card} was declined")' in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_exit_fails_the_task() -> None:
    result = finished(tasks.leave.enqueue())
    assert (result.status, result.errors[0].exception_class) == (FAILED, SystemExit)


def test_value_that_is_not_json_fails_the_task_at_once() -> None:
    result = finished(tasks.return_function.using(max_attempts=9).enqueue())
    assert (result.status, result.attempts) == (FAILED, 1)
    assert "Unsupported type" in result.errors[0].traceback


def test_argument_that_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(datetime.now(UTC))


def test_task_is_retried_and_keeps_its_error() -> None:
    result = finished(tasks.fail_once.enqueue())
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 2, 2)
    assert [error.exception_class for error in result.errors] == [tasks.Declined]
    assert result.started_at < result.last_attempted_at


def test_discarded_task_is_not_retried() -> None:
    result = finished(tasks.discard.enqueue())
    assert (result.status, result.attempts) == (FAILED, 1)


def test_canceled_task_has_failed() -> None:
    result = later(tasks.add).enqueue(1)
    client().cancel(result.id, "not needed")
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 0)
    assert result.errors[0].exception_class is pulse.JobCanceled
    assert result.errors[0].traceback == "not needed"


def test_start_time_is_that_of_the_job() -> None:
    task = later(tasks.add)
    assert client().get_job(task.enqueue(1).id).next_run_at == task.run_after


def test_project_without_time_zones_has_naive_times() -> None:
    with override_settings(USE_TZ=False):
        result = finished(tasks.add.enqueue(1))
        assert result.finished_at.tzinfo is None
        task = tasks.add.using(run_after=datetime.now() + LATER)
        stored = task.get_result(task.enqueue(1).id)
        assert stored.task.run_after == task.run_after


def test_job_has_the_options_of_one_enqueue() -> None:
    task = later(tasks.add).using(lane="a", key="k", max_attempts=4, metadata={"shop": "7"})
    first, second = task.enqueue(1), task.enqueue(1)
    job = client().get_job(first.id)
    assert (job.lane, job.idempotency_key, job.max_attempts, job.metadata["shop"]) == ("a", "k", 4, "7")
    assert second.id == first.id


def test_task_has_every_option_of_a_handler() -> None:
    assert {*HANDLER_OPTIONS, "priority"} == JobOptions.__annotations__.keys()


def test_option_of_a_handler_belongs_to_the_decorator() -> None:
    with pytest.raises(TypeError, match="given to the decorator"):
        tasks.fail_once.using(timeout=LATER)


def test_wrong_option_is_refused() -> None:
    with pytest.raises(InvalidTask, match="max_attempts has to be a whole number"):
        tasks.task(max_attempts=0)(tasks.add.func)


def test_topic_that_cannot_be_stored_is_refused() -> None:
    with (
        override_settings(TASKS={"default": {**_backend(), "QUEUES": []}}),
        pytest.raises(InvalidTask, match="The topic 'a queue:tests"),
    ):
        tasks.add.using(queue_name="a queue")


def test_task_is_enqueued_at_once_in_a_transaction() -> None:
    with transaction.atomic():
        assert finished(tasks.add.enqueue(1)).return_value == 1


@pytest.mark.parametrize("backend", ["on_commit", "transaction"])
def test_backend_stores_the_job_with_the_commit(backend: str) -> None:
    task = tasks.add.using(backend=backend)
    with transaction.atomic():
        result = task.enqueue(1)
        with pytest.raises(TaskResultDoesNotExist):
            task.get_result(result.id)
    assert finished(result).return_value == 1


@pytest.mark.parametrize("backend", ["on_commit", "transaction"])
def test_backend_stores_no_job_after_a_rollback(backend: str) -> None:
    task = tasks.add.using(backend=backend)
    with transaction.atomic():
        result = task.enqueue(1)
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_result_that_is_no_task_does_not_exist() -> None:
    topics = ("other", "default:os.getcwd", "default:tests.system.tasks_site.broken.task")
    for job_id in ("123", *(client().enqueue_now(topic).id for topic in topics)):
        with pytest.raises(TaskResultDoesNotExist, match=job_id):
            tasks.add.get_result(job_id)


def test_result_of_another_task_does_not_match() -> None:
    with pytest.raises(TaskResultMismatch):
        tasks.add.get_result(tasks.send.enqueue("ada").id)


def test_job_without_arguments_runs_its_task() -> None:
    handle = client().enqueue_now("default:tests.system.tasks_site.tasks.identify")
    result = finished(tasks.identify.get_result(handle.id))
    assert result.return_value[2:4] == [[], {}]


def test_job_runs_with_what_no_task_may_have() -> None:
    """An operator may set any priority, and the project may remove a queue from QUEUES."""
    path = "tests.system.tasks_site.tasks.identify"
    urgent = client().enqueue_now(f"default:{path}", priority=1000)
    result = finished(tasks.identify.get_result(urgent.id))
    assert (result.status, result.task.priority) == (SUCCESSFUL, 1000)
    removed = client().enqueue_now(f"removed:{path}")
    assert tasks.identify.get_result(removed.id).task.queue_name == "removed"


def test_task_runs_on_the_queues_of_every_backend() -> None:
    task = tasks.add.using(backend="bulk", queue_name="bulk")
    job = client().get_job(later(task).enqueue(1).id)
    assert job.max_attempts == 2
    handler = client()._registry.get(job.topic)
    assert handler is not None
    assert handler.options.max_attempts == 2, "as OPTIONS of the backend of this queue"
    assert finished(task.enqueue(1)).status == SUCCESSFUL


def test_late_import_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    importlib.import_module("tests.system.tasks_site.late_tasks")
    assert "late was imported after this worker had started" in caplog.text


def test_wrong_options_of_the_backend_are_refused() -> None:
    for options, sentence in (
        ({"ENQUEUE": "soon"}, "ENQUEUE has to be one of"),
        ({"tries": 1}, "no option 'tries'"),
    ):
        settings = {"default": {**_backend(), "OPTIONS": options}}
        with override_settings(TASKS=settings), pytest.raises(Exception, match=sentence):
            tasks.add.using(priority=1)


def _backend() -> dict[str, Any]:
    return {"BACKEND": "pulse.django.tasks_backend.PulseBackend"}
