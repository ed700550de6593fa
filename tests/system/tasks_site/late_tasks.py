"""Imported while a worker runs."""

from pulse.django.tasks_backend import task


@task
def late() -> None: ...
