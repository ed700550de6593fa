"""The arguments of the handlers of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

# Jobs of a flood take as long as all of them do at the moment: no time, then most of a second.
AT_THE_PACE = -1.0


@dataclass
class Errand:
    """What a handler does. The key is first: the audit finds it there."""

    key: str = ""
    expect: str = "complete"
    seconds: float = 0.0
    ballast: str = ""
    children: list[str] = field(default_factory=list)  # in its workflow, by name
