"""Backends of pulse in the place of Django's own, for Django's tests of them. See `django_backend_tests`."""

from typing import Any

from pulse.django.clients import client
from pulse.django.tasks_backend import PulseBackend
from pulse.testing import Kit

kit = Kit()
"""The queue of all tests."""


class ImmediateBackend(PulseBackend):
    """Runs a task before `enqueue` returns."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._defaults["max_attempts"] = 1  # not in OPTIONS, which the tests read

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        kit.run(result)
        result.refresh()
        return result


class DummyBackend(PulseBackend):
    """Stores tasks, and runs none."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._ids: list[str] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self._ids.append(result.id)
        return result

    @property
    def results(self) -> list[Any]:
        """The results of the stored tasks, as they are read."""
        return [self.get_result(job_id) for job_id in self._ids]

    def clear(self) -> None:
        """Delete the stored tasks."""
        while self._ids:
            client().cancel(job_id := self._ids.pop())
            client().delete(job_id)
