"""Whether a sampled value stayed stable."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from benchmarks.figures import written

# The beginning means nothing: caches fill, pools grow, the first passes of retention are still to come.
_WARM_UP_SHARE = 1 / 3
# Fewer values than this after the warm-up have no trend worth the name.
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    about: str
    reason: str
    is_good: bool | None
    """None: not enough data to judge."""

    @property
    def line(self) -> str:
        mark = {True: "ok  ", False: "FAIL", None: "?   "}[self.is_good]
        return f"{mark} {self.about}: {self.reason}"


def slope(values: Sequence[float]) -> float:
    """Return by how much they grow from one to the next: the median over all pairs, so no outlier counts."""
    slopes = [(later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(values), 2)]
    return statistics.median(slopes)


def stays_flat(
    about: str, unit: str, by_minute: Sequence[float], *, tolerance: float, spare: float
) -> Verdict:
    """Judge values of one a minute: after the warm-up their trend adds no more than a share of their median.

    Nor does less than `spare` count, whatever the share.
    """
    judged = _judged(by_minute)
    if len(judged) < _FEWEST:
        return Verdict(about, f"{len(judged)} minutes after the warm-up are too few to judge", None)
    per_minute, median = slope(judged), statistics.median(judged)
    growth = per_minute * (len(judged) - 1)
    reason = (
        f"median {written(median)} {unit}, trend {per_minute * 60:+.2f} {unit} an hour over the last "
        f"{len(judged)} minutes"
    )
    return Verdict(about, reason, growth <= max(tolerance * median, spare))


def stays_bounded(about: str, unit: str, by_minute: Sequence[float], *, tolerance: float) -> Verdict:
    """Judge values of one a minute that go up and down: the last third reaches no higher than the second."""
    third = len(by_minute) // 3
    if third < _FEWEST:
        return Verdict(about, f"{len(by_minute)} minutes are too few to judge", None)
    before, last = max(by_minute[third : 2 * third]), max(by_minute[2 * third :])
    reason = f"at most {written(before)} {unit} in the second third, {written(last)} {unit} in the last"
    return Verdict(about, reason, last <= before * (1 + tolerance))


def _judged(by_minute: Sequence[float]) -> Sequence[float]:
    return by_minute[round(len(by_minute) * _WARM_UP_SHARE) :]
