"""The conditions under which a server can serve requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One condition. `why` is a sentence if it does not hold."""

    name: str
    ok: bool
    why: str = ""
