"""What has to be well before a server is of use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that has to be well. `why` is a sentence if it is not."""

    name: str
    ok: bool
    why: str = ""
