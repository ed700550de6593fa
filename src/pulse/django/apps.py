"""The Django app: it imports the module `tasks` of each installed app, where the handlers are."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class PulseConfig(AppConfig):
    """`pulse.django` in INSTALLED_APPS."""

    name = "pulse.django"
    label = "pulse"
    verbose_name = "pulse"

    def ready(self) -> None:
        """Import the handlers, in every process of the project: all models are loaded now."""
        from pulse.django import checks  # noqa: F401 - registers them

        autodiscover_modules("tasks")
