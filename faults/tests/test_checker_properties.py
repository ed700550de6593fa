"""The checker accepts random legal lives, and finds each kind of fault in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from faults.checker import check
from faults.evidence import Evidence
from faults.tests.made_up.lives import live
from faults.tests.made_up.sabotage import SABOTAGES

_beginnings = st.lists(st.integers(0, 26), min_size=1, max_size=4)
_choices = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 23)), max_size=30)
_places = st.integers(0, 10_000)


@settings(max_examples=150)
@given(_beginnings, _choices)
def test_legal_lives_pass(beginnings: list[int], choices: list[tuple[int, int]]) -> None:
    verdict = check(live(beginnings, choices).evidence())
    assert verdict.is_good, verdict


@pytest.mark.parametrize("sabotage", list(SABOTAGES), ids=lambda sabotage: sabotage.__name__)
@settings(max_examples=25)
@given(_beginnings, _choices, _places)
@example([9], [(0, 2), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1)], 7466)  # a reap is the first change of its job
def test_each_sabotage_is_found(
    sabotage: Callable[[Evidence, int], None],
    beginnings: list[int],
    choices: list[tuple[int, int]],
    place: int,
) -> None:
    evidence = live(beginnings, choices).evidence()
    sabotage(evidence, place)
    verdict = check(evidence)
    assert SABOTAGES[sabotage] & {violation.invariant for violation in verdict.violations}
    # The verdict shows it.
    assert verdict.violations[0].what in str(verdict)
