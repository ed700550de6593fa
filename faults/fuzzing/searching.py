"""Lets Hypothesis make inputs, a few at a time, and shrink those that get a bad answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from faults.fuzzing.inputs import Input

Volley = Sequence[Input]
_LARGEST_VOLLEY = 6


@dataclass(frozen=True)
class Finding:
    """Inputs that were sent together, and the complaints about their answers."""

    volley: tuple[Input, ...]
    complaints: tuple[str, ...]
    is_steady: bool = True
    """Whether they got such an answer each time; else it depends on the state of the server."""

    def __str__(self) -> str:
        lines = [*self.complaints, "after" if self.is_steady else "once, after", *map(repr, self.volley)]
        return "\n    ".join(lines)


class BadAnswer(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def search(
    inputs: SearchStrategy[Input], shoot: Callable[[Volley], Sequence[str]], *, volleys: int, number: int
) -> Finding | None:
    """Send that many volleys. Returns the smallest one with complaints, or None."""
    seen: list[Finding] = []

    @seed(number)
    @settings(
        max_examples=volleys,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(st.lists(inputs, min_size=1, max_size=_LARGEST_VOLLEY))
    def shoots(volley: list[Input]) -> None:
        if wrong := shoot(volley):
            seen.append(Finding(tuple(volley), tuple(wrong)))
            raise BadAnswer(seen[-1])

    try:
        shoots()
    except BadAnswer as bad:
        return bad.finding
    except Flaky:
        smallest = min(seen, key=lambda finding: len(repr(finding.volley)))
        return Finding(smallest.volley, smallest.complaints, is_steady=False)
    return None
