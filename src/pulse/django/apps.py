"""The Django app: it imports the module `tasks` of each installed app, where the handlers are."""

from __future__ import annotations

import sys

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from pulse.django.settings import configured
from pulse.wire.redirection import Redirection, Refusing, by_default

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
        from pulse.django import checks  # noqa: F401 - registers them

        by_default(_destination)
        autodiscover_modules("tasks")


def _destination() -> Redirection | None:
    """Refuse connections between setup_test_environment and teardown_test_environment of Django."""
    utils = sys.modules.get("django.test.utils")
    if not hasattr(getattr(utils, "_TestState", None), "saved_data"):
        return None
    return None if configured().connect_in_tests else _REFUSING
