"""Facts about tasks in transactions, and with other backends. `test_django_tasks` runs them."""

from datetime import timedelta
from typing import Any

import django
import pytest

django.setup()

from django.db import transaction  # noqa: E402
from django.test import override_settings  # noqa: E402

import pulse  # noqa: E402
from pulse.django.clients import client  # noqa: E402
from pulse.django.tasks_backend import BaseTaskBackend, base  # noqa: E402
from tests.system.tasks_site import tasks  # noqa: E402


def test_job_is_refused_before_the_commit() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"key": ""}, 'key="" is not a key'),
        ({"key": "k" * 256}, "key has 256 characters"),
        ({"metadata": {"a": 1}}, "metadata has to map strings to strings"),
    ]
    with transaction.atomic():
        for options, sentence in refused:
            with pytest.raises(pulse.InvalidArgument, match=sentence):
                tasks.task(backend="on_commit")(tasks.discard.func).using(**options).enqueue()
        assert not transaction.get_connection().run_on_commit


def test_task_is_stored_in_a_transaction_by_hand() -> None:
    """The commit wakes no server: Django does not report it."""
    transaction.set_autocommit(False)
    try:
        result = tasks.add.using(backend="transaction", priority=-9).enqueue(1)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert client().get_job(result.id).priority == -9


def test_task_with_options_runs_with_another_backend() -> None:
    module = BaseTaskBackend.__module__.removesuffix(".base")
    with override_settings(TASKS={"default": {"BACKEND": f"{module}.immediate.ImmediateBackend"}}):
        made = tasks.task(timeout=timedelta(minutes=1))(tasks.add.func)
        result = made.using(lane="a").enqueue(1, 2)
    assert (result.status, result.return_value) == (base.TaskResultStatus.SUCCESSFUL, 3)
    with pytest.raises(TypeError, match="timeuot"):
        tasks.task(timeuot=timedelta(minutes=1))(tasks.add.func)
