"""Refuses an application of a Django project that is not set up: each job that uses a model would fail."""

from __future__ import annotations

import os
import sys

from pulse_cli.failures import Misuse

REMEDY = (
    "Run `python manage.py pulse_worker` (docs/how-to/django.md), or call django.setup() at the top of the "
    "module, before its other imports."
)
_ERRORS = ("AppRegistryNotReady", "ImproperlyConfigured")


def check_set_up(target: str) -> None:
    """Raise Misuse if the application is part of a Django project, and django.setup() was not called."""
    apps = sys.modules.get("django.apps")
    if apps is not None and apps.apps.ready:
        return
    project = os.environ.get("DJANGO_SETTINGS_MODULE")
    if project:
        raise Misuse(
            f"DJANGO_SETTINGS_MODULE is {project}, but importing {target} has not set Django up: each job "
            f"that uses a model would fail with AppRegistryNotReady. {REMEDY} If the application does "
            "without Django, unset the variable."
        )
    if "django.db" in sys.modules:
        raise Misuse(
            f"{target} imports django.db, but has not set Django up: each job that uses a model would fail. "
            f"{REMEDY}"
        )


def remedy_of(error: BaseException) -> str:
    """Return the next step for an error of a Django that is not set up, or an empty string."""
    is_django = type(error).__module__ == "django.core.exceptions" and type(error).__name__ in _ERRORS
    return f" {REMEDY}" if is_django else ""
