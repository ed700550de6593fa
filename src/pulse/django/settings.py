"""The setting `PULSE` of a Django project, checked."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from pulse.client import Pulse

When = Literal["on_commit", "transaction", "now"]
"""When `enqueue` stores a job: after the commit, in the transaction itself, or at once."""

_OF_THE_CLIENT = {name.upper(): name for name in inspect.signature(Pulse).parameters}
_OWN = ("ENQUEUE", "DATABASE", "DEFAULTS", "DASHBOARD", "CONNECT_IN_TESTS")
KEYS = (*_OF_THE_CLIENT, *_OWN)


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked setting `PULSE`."""

    client: Mapping[str, Any]
    """The parameters of `pulse.Pulse`, by their names."""
    enqueue: When
    database: str
    """The alias of the database whose transactions `enqueue` waits for, or stores jobs in."""
    defaults: Mapping[str, Any]
    """The options of handlers that are registered without their own."""
    dashboard: str
    """The address of the dashboard, without a slash at its end. Empty if there is none."""
    connect_in_tests: bool = False
    """Whether clients reach their own addresses while Django runs tests."""


def configured() -> Settings:
    """Return the setting `PULSE`. Raises ImproperlyConfigured for a key or a value that cannot be used."""
    given = getattr(settings, "PULSE", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(
            'The setting PULSE has to be a dict, such as {"ADDRESS": "localhost:50051"}, '
            f"but it is {given!r:.80}."
        )
    for key in given:
        if key not in KEYS:
            raise ImproperlyConfigured(_unknown(key))
    client = {name: given[key] for key, name in _OF_THE_CLIENT.items() if given.get(key) is not None}
    client.setdefault("application", os.environ.get("PULSE_APPLICATION") or _project())
    return Settings(
        client,
        _when(given.get("ENQUEUE", "on_commit")),
        _database(given.get("DATABASE", "default")),
        _of_type(given, "DEFAULTS", Mapping, {}),
        _of_type(given, "DASHBOARD", str, "").rstrip("/"),
        _of_type(given, "CONNECT_IN_TESTS", bool, False),
    )


def _unknown(key: object) -> str:
    close = difflib.get_close_matches(str(key).upper(), KEYS, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]}?" if close else f"The keys are {', '.join(KEYS)}."
    return f"The setting PULSE has no key {key!r}. {hint}"


def _when(given: Any) -> When:
    if given not in get_args(When):
        known = ", ".join(map(repr, get_args(When)))
        raise ImproperlyConfigured(f'PULSE["ENQUEUE"] has to be one of {known}, not {given!r:.80}.')
    when: When = given
    return when


def _database(alias: Any) -> str:
    if alias not in settings.DATABASES and alias != "default":  # Django adds a default without a database
        known = ", ".join(map(repr, settings.DATABASES))
        raise ImproperlyConfigured(f'PULSE["DATABASE"] is {alias!r:.80}, but DATABASES has only {known}.')
    return str(alias)


def _of_type(given: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = given.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        name = "dict" if kind is Mapping else kind.__name__
        raise ImproperlyConfigured(f'PULSE["{key}"] has to be a {name}, not {value!r:.80}.')
    return value


def _project() -> str | None:
    """Return the package of the settings: the name under which the project declares its schedules."""
    module = getattr(settings, "SETTINGS_MODULE", None)
    return module.partition(".")[0] if module else None
