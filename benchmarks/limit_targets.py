"""Targets for the cost of limits, and the result of a run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Figure, written
from benchmarks.scenarios import limits, tenants
from benchmarks.tables import OURS, Figures, one_by_one
from benchmarks.targets import Judged, Reached, Target, as_table

SCENARIOS = ("limits", "tenants")


def _times(scenario: str, name: str, plain: str) -> Callable[[Figures], Reached | None]:
    """Compare with the same work without limits, in the same run."""

    def read(figures: Figures) -> Reached | None:
        ours, other = figures.find(OURS, scenario, name), figures.find(OURS, scenario, plain)
        if not ours or not other:
            return None
        about = f"{written(ours.median)} beside {written(other.median)} {ours.unit}"
        return Reached(ours.median / other.median, about)

    return read


def _of_ours(name: str) -> Callable[[Figures], Reached | None]:
    def read(figures: Figures) -> Reached | None:
        ours = figures.find(OURS, "tenants", name)
        return Reached(ours.median, "") if ours else None

    return read


def _by_sql(policy: str, bound: float) -> Target:
    read = _times("limits", f"SQL, {policy}", f"SQL, {limits.NO_LIMITS}")
    return Target(f"{policy}, by SQL", bound, "× no limits", read)


def _idle(policy: str) -> Target:
    name = f"{tenants.idle_name(policy)}, p50"
    read = _times("tenants", name, f"{tenants.idle_name(limits.NO_LIMITS)}, p50")
    return Target(f"idle, {policy}, p50", 1.5, "× no limits", read, is_most=True)


TARGETS = (
    _by_sql(limits.LIMIT, 0.9),
    _by_sql(limits.KEYS, 0.45),
    _by_sql(limits.MANY_KEYS, 0.45),
    Target("an empty claim, keys", 2, "ms", _of_ours(tenants.EMPTY_BY_KEYS), is_most=True),
    Target("an empty claim, limit", 2, "ms", _of_ours(tenants.EMPTY_BY_LIMIT), is_most=True),
    Target("a light key beside a heavy one, p99", 50, "ms", _of_ours(f"{tenants.LIGHT}, p99"), is_most=True),
    *(_idle(policy) for policy in tenants.IDLE_LIMITS if policy != limits.NO_LIMITS),
)


def as_block(figures: Figures) -> str:
    """Return the verdicts and the figures of all systems, as Markdown."""
    judged = [Judged(target, target.read(figures)) for target in TARGETS]
    own = [figure for figure in figures.all if is_of_limits(figure)]
    return f"{as_table(judged)}\n\n{one_by_one(own, with_system=True)}"


def is_of_limits(figure: Figure) -> bool:
    return figure.scenario in SCENARIOS
