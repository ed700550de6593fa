"""Claims as the workers of the lifecycle machine send them: right ones and distorted ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from pulse_server.jobs.rules import Claim


class Said(NamedTuple):
    """The claim that a worker reports: the n-th that holds or the n-th ever issued, and how it reports it."""

    holds: bool
    number: int
    how: str


DISTORTIONS: dict[str, Callable[[Claim], Claim]] = {
    "right": lambda claim: claim,
    "foreign": lambda claim: claim._replace(worker_id="stranger"),
    "earlier": lambda claim: claim._replace(attempt=(claim.attempt or 0) - 1),
    "later": lambda claim: claim._replace(attempt=(claim.attempt or 0) + 1),
    "without worker": lambda claim: claim._replace(worker_id=None),
    "without attempt": lambda claim: claim._replace(attempt=None),
    "bare": lambda claim: Claim(claim.job_id, None, None),
}


numbers = st.integers(0, 30)


said = st.lists(
    st.builds(
        Said,
        st.sampled_from([True, True, False]),
        numbers,
        st.sampled_from(["right"] * len(DISTORTIONS) + list(DISTORTIONS)),
    ),
    min_size=1,
    max_size=3,
)
