"""The task framework: `django.tasks` from Django 6 on, the package django-tasks before."""

import django

if django.VERSION >= (6, 0):
    from django.tasks import base, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import base, signals, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImportError(
            "pulse.django.tasks_backend needs Django 6, or the package django-tasks: pip install django-tasks"
        ) from error

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "base",
    "normalize_json",
    "signals",
    "task_backends",
]
