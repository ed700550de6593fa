"""The Django app: it imports the module `tasks` of each installed app, where the handlers are.

Its system checks are what `manage.py check` reports about the settings of pulse.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import django
from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import autodiscover_modules

from pulse.django.clients import KEYS, client, configured
from pulse.wire.redirection import Redirection, Refusing, by_default

_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")


@checks.register("pulse")  # type: ignore[untyped-decorator]
def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """Check the setting PULSE, and the environment of async handlers."""
    try:
        client()
    except ImproperlyConfigured as error:
        hint = f"The keys of PULSE are {', '.join(KEYS)}."
        return [checks.Error(str(error), hint=hint, id="pulse.E001")]
    chosen = configured()
    return [
        *_check_addresses(),
        *_check_async(),
        *_check_transactions("PULSE", "PULSE", chosen.enqueue, chosen.database),
    ]


@checks.register("pulse")  # type: ignore[untyped-decorator]
def check_tasks(**_: Any) -> list[checks.CheckMessage]:
    """Check the backends of TASKS, unless Django 6 or the app django_tasks does it."""
    if django.VERSION >= (6, 0) or apps.is_installed("django_tasks") or not hasattr(settings, "TASKS"):
        return []
    if importlib.util.find_spec("django_tasks") is None:
        return []  # TASKS is a setting of something else
    from django_tasks import task_backends

    found = [message for backend in task_backends.all() for message in backend.check()]
    return [message for message in found if (message.id or "").startswith("pulse.")]


def _check_addresses() -> Iterator[checks.CheckMessage]:
    chosen = configured()
    if "address" not in chosen.client and "PULSE_ADDR" not in os.environ:
        yield checks.Warning(
            f"The address of pulsed is not set, so the project uses {client().address}.",
            hint='Set PULSE = {"ADDRESS": "host:port"}, or the environment variable PULSE_ADDR.',
            id="pulse.W001",
        )
    if chosen.dashboard and not chosen.dashboard.startswith(("http://", "https://")):
        yield checks.Warning(
            f'PULSE["DASHBOARD"] is {chosen.dashboard!r:.80}, which is no address that a browser can open.',
            hint="Begin it with https:// or http://.",
            id="pulse.W002",
        )


def _check_async() -> Iterator[checks.CheckMessage]:
    if os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        yield checks.Warning(
            "DJANGO_ALLOW_ASYNC_UNSAFE is set, so an async handler can query the database in the event loop. "
            "Other async handlers of its worker wait meanwhile, and share its connection.",
            hint="Unset it, and use the async methods of the ORM, or sync_to_async.",
            id="pulse.W003",
        )


def check_backend(backend: Any) -> Iterator[checks.CheckMessage]:
    """Check a backend of TASKS. Django calls this once for each."""
    place = f"TASKS[{backend.alias!r}]"
    if not any(app.startswith("pulse.django") for app in settings.INSTALLED_APPS):
        yield checks.Error(
            f"{place} uses pulse, but pulse.django is not in INSTALLED_APPS: no worker could run its tasks.",
            hint='Add "pulse.django" to INSTALLED_APPS. It has the command pulse_worker.',
            id="pulse.E002",
        )
    for queue in sorted(backend.queues):
        if not _QUEUE.fullmatch(queue):
            yield checks.Error(
                f"{place} has the queue {queue!r}, which pulse cannot use as part of a topic.",
                hint="Use letters, digits and . _ - : / and begin with a letter or digit.",
                id="pulse.E003",
            )
    with contextlib.suppress(ImproperlyConfigured):  # E001 has it
        yield from _check_transactions(place, "its OPTIONS", backend.when, configured().database)


def _check_transactions(place: str, remedy_in: str, when: str, alias: str) -> Iterator[checks.CheckMessage]:
    database = connections[alias]
    hint = f'Set "ENQUEUE": "on_commit" in {remedy_in}.'
    if when == "transaction" and database.vendor != "postgresql":
        yield checks.Error(
            f"{place} stores jobs in transactions of the database {alias!r}, which is not PostgreSQL.",
            hint=hint,
            id="pulse.E004",
        )
    if when == "now" and database.settings_dict.get("ATOMIC_REQUESTS"):
        yield checks.Warning(
            f"{place} enqueues at once, but ATOMIC_REQUESTS commits at the end of a request: a job can run "
            "before the rows of its request exist, and runs although the request is rolled back.",
            hint=hint,
            id="pulse.W004",
        )


_REFUSING = Refusing(
    "A test uses a client of pulse, and no client connects while Django runs tests: it could be the queue of "
    "a developer. Open a kit: `self.kit = self.enterContext(pulse.testing.Kit())` in setUp. To let clients "
    'connect to their own addresses, set "CONNECT_IN_TESTS": True in the setting PULSE of the tests.'
)


class PulseConfig(AppConfig):
    """`pulse.django` in INSTALLED_APPS."""

    name = "pulse.django"
    label = "pulse"
    verbose_name = "pulse"

    def ready(self) -> None:
        """Import the handlers, in every process of the project: all models are loaded now."""
        by_default(_destination)
        autodiscover_modules("tasks")


def _destination() -> Redirection | None:
    """Refuse connections between setup_test_environment and teardown_test_environment of Django."""
    utils = sys.modules.get("django.test.utils")
    if not hasattr(getattr(utils, "_TestState", None), "saved_data"):
        return None
    return None if configured().connect_in_tests else _REFUSING
