"""The type of an option of pulsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """One thing to set. `parse` takes the text and the option's name, and raises BadSettings."""

    field: str
    variable: str
    group: str
    help: str
    parse: Callable[[str, str], Any]
    default: str = ""
    """As an operator would write it; empty: there is none, or it depends."""
    metavar: str = ""
    is_secret: bool = False
    """Has no flag, since a command line can be read by everyone on the machine, and is never printed."""

    @property
    def flag(self) -> str | None:
        if self.is_secret:
            return None
        return "--" + self.variable.removeprefix("PULSE_").lower().replace("_", "-")
