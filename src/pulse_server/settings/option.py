"""The type of an option of pulsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `parse` takes the text and the option's name, and raises BadSettings."""

    field: str
    variable: str
    group: str
    help: str
    parse: Callable[[str, str], Any]
    default: str = ""
    """As an operator would write it. Empty: no default, or it depends on other settings."""
    metavar: str = ""
    is_secret: bool = False
    """Never printed, and has no flag: every user of the machine can read a command line."""

    @property
    def flag(self) -> str | None:
        if self.is_secret:
            return None
        return "--" + self.variable.removeprefix("PULSE_").lower().replace("_", "-")
