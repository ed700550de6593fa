"""The product's targets, and the result of a run: `python3 dev.py bench targets --peers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.figures import WITHOUT_PGO, Figure, written
from benchmarks.scenarios import backlog, bulk, crowd, drain, history, idle, retention, running
from benchmarks.tables import OURS, Figures, table
from benchmarks.verdicts import Verdict

GRAPHILE = "graphile-worker"
# Queues that keep their jobs in Postgres. Queues on Redis keep nothing on disk here.
POSTGRES_PEERS = (GRAPHILE, "awa", "pg-boss", "oban", "procrastinate", "pgqueuer")
# Enough to judge every target: other peers reached less than half of the best figure.
PEERS = (GRAPHILE, "awa", "oban", "pgqueuer")
SCENARIOS = (
    "drain",
    "bulk",
    "submit",
    "e2e",
    "idle",
    "crowd",
    "running",
    "retention",
    "history",
    "backlog",
)
# The peers that each scenario is judged by. In other scenarios pulse is compared with itself.
PEERS_IN = {
    "drain": (GRAPHILE,),
    "bulk": (GRAPHILE,),
    "idle": (GRAPHILE,),
    "submit": POSTGRES_PEERS,
    "e2e": POSTGRES_PEERS,
}

_ONE, _TWO = drain.NAMES
_E2E = "2 processes × 80"


@dataclass(frozen=True, slots=True)
class Reached:
    """The judged figure of a target, and the figures it is compared with."""

    value: float
    about: str


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    bound: float
    unit: str
    read: Callable[[Figures], Reached | None]
    """None: the run has no figure for it."""
    is_most: bool = False
    """The bound is the most that is allowed, not the least."""

    @property
    def wanted(self) -> str:
        return f"{'≤' if self.is_most else '≥'} {_with_unit(self.bound, self.unit)}"

    def is_met(self, value: float) -> bool:
        return value <= self.bound if self.is_most else value >= self.bound


def _with_unit(value: float, unit: str) -> str:
    return f"{written(value)}{unit}" if unit == "×" else f"{written(value)} {unit}"


def _of_ours(scenario: str, name: str) -> Callable[[Figures], Reached | None]:
    def read(figures: Figures) -> Reached | None:
        ours = figures.find(OURS, scenario, name)
        return Reached(ours.median, "") if ours else None

    return read


def _times(
    scenario: str, name: str, peers: Sequence[str], of: str = ""
) -> Callable[[Figures], Reached | None]:
    """Compare with the best of the peers in the figure of that name."""

    def read(figures: Figures) -> Reached | None:
        ours, theirs = figures.find(OURS, scenario, name), _best(figures, scenario, of or name, peers)
        if not ours or not theirs:
            return None
        about = f"{written(ours.median)} beside {written(theirs.median)} {ours.unit} of {theirs.system}"
        return Reached(ours.median / theirs.median, about)

    return read


def _best(figures: Figures, scenario: str, name: str, peers: Sequence[str]) -> Figure | None:
    found = [figure for peer in peers if (figure := figures.find(peer, scenario, name))]
    return max(found, key=lambda figure: figure.median, default=None)


TARGETS = (
    Target(
        "drain, 2 processes, Python without PGO",
        1.15,
        "×",
        _times("drain", _TWO + WITHOUT_PGO, [GRAPHILE], _TWO),
    ),
    Target("drain, 2 processes, Python with PGO", 1.3, "×", _times("drain", _TWO, [GRAPHILE])),
    Target(
        "drain, 1 process, Python without PGO",
        1.25,
        "×",
        _times("drain", _ONE + WITHOUT_PGO, [GRAPHILE], _ONE),
    ),
    Target("drain, 1 process, Python with PGO", 1.25, "×", _times("drain", _ONE, [GRAPHILE])),
    Target("drain through 500 workers", 17_000, "jobs/s", _of_ours("crowd", crowd.DRAIN)),
    Target("transaction held open for 80 s, backlog", 0.95, "× clean", _of_ours("backlog", backlog.SHARE)),
    Target(
        "10,000,000 finished jobs beside a drain",
        1.02,
        "× plain",
        _of_ours("history", history.COST),
        is_most=True,
    ),
    Target("retention, a job", 0.2, "µs", _of_ours("retention", retention.COST), is_most=True),
    Target("bulk", 2.0, "×", _times("bulk", bulk.NAME, [GRAPHILE])),
    Target("submit, 8 callers", 2.5, "×", _times("submit", "8 producers", POSTGRES_PEERS)),
    Target("e2e, 2 × 80", 3.5, "×", _times("e2e", _E2E, POSTGRES_PEERS)),
    Target("idle, p50", 2.2, "ms", _of_ours("idle", idle.P50), is_most=True),
    Target("idle, p50, beside graphile-worker", 1.0, "×", _times("idle", idle.P50, [GRAPHILE]), is_most=True),
    Target("a claim behind 10,000 running jobs", 0.9, "ms", _of_ours("running", running.NAME), is_most=True),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A target and its figure in a run."""

    target: Target
    reached: Reached | None

    @property
    def verdict(self) -> Verdict:
        if self.reached is None:
            return Verdict(self.target.name, "not measured", None)
        is_met = self.target.is_met(self.reached.value)
        value = _with_unit(self.reached.value, self.target.unit)
        return Verdict(self.target.name, f"{value}, target {self.target.wanted}", is_met)


def judge(figures: Figures, *, has_pgo: bool | None) -> list[Judged]:
    """Judge every target by the figures of a run, whose main interpreter has PGO or not."""
    if not has_pgo:
        figures = _as_plain(figures)
    return [Judged(target, target.read(figures)) for target in TARGETS]


def _as_plain(figures: Figures) -> Figures:
    """Return the figures with pulse's drains named as drains of a Python without PGO."""
    return Figures(
        replace(figure, name=f"{figure.name}{WITHOUT_PGO}")
        if (figure.system, figure.scenario) == (OURS, "drain")
        else figure
        for figure in figures.all
    )


def as_table(judged: Sequence[Judged]) -> str:
    """Return one row for each target: the wanted value, the reached value, and the verdict."""
    rows = []
    for one in judged:
        if one.reached is None:
            rows.append([one.target.name, one.target.wanted, "not measured", "", ""])
            continue
        value = _with_unit(one.reached.value, one.target.unit)
        mark = "met" if one.verdict.is_good else "**missed**"
        rows.append([one.target.name, one.target.wanted, value, mark, one.reached.about])
    return table(["measure", "target", "reached", "verdict", ""], rows)
