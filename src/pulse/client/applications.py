"""The name under which a program declares its schedules."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pulse.errors import InvalidArgument

_LONGEST = 255
_MAIN = ("__main__", "__mp_main__")


def application_name(given: str | None) -> str:
    """Return the name given, that of PULSE_APPLICATION, or that of the module which creates the client.

    Empty in a notebook or at a prompt, where no name would last.
    """
    name = os.environ.get("PULSE_APPLICATION", "") if given is None else given
    if not isinstance(name, str) or len(name) > _LONGEST or not name.isprintable():
        raise InvalidArgument(
            f"application has to be a name of up to {_LONGEST} characters, such as 'shop', not {name!r:.80}."
        )
    return name or _module_of_the_caller()


def _module_of_the_caller() -> str:
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "pulse" and frame.f_back is not None:
        frame = frame.f_back
    return _name_of(frame.f_globals)[:_LONGEST]


def _name_of(module: Mapping[str, Any]) -> str:
    name = str(module.get("__name__", ""))
    if name not in _MAIN:
        return name
    # `python -m shop.app` has the name in the spec. `python app.py` has the file only.
    if (spec := module.get("__spec__")) is not None:
        return str(spec.name).removesuffix(".__main__")
    return PurePath(module.get("__file__") or "").stem
