"""The goals of the release are judged by the figures of one run."""

import re

import pytest

from benchmarks import __main__ as command
from benchmarks import machine, report, targets
from benchmarks.figures import WITHOUT_PGO, Figure
from benchmarks.peers import catalogue, method
from benchmarks.scenarios import backlog, drain, e2e, history, idle
from benchmarks.stand import Stand
from benchmarks.tables import Figures
from tests.rows import each_row

ONE, TWO = drain.NAMES


def figure(scenario: str, name: str, value: float, system: str = "pulse", unit: str = "jobs/s") -> Figure:
    return Figure(scenario, name, unit, [value], system=system)


DRAINS = [
    figure("drain", TWO, 39_000.0),
    figure("drain", TWO + WITHOUT_PGO, 33_000.0),
    figure("drain", TWO, 30_000.0, "graphile-worker"),
]


def verdicts(figures: list[Figure], *, has_pgo: bool | None = True) -> dict[str, bool | None]:
    judged = targets.judge(Figures(figures), has_pgo=has_pgo)
    return {one.target.name: one.verdict.is_good for one in judged}


def test_drain_is_judged_on_both_interpreters() -> None:
    judged = verdicts(DRAINS)
    assert judged["drain, 2 processes, Python with PGO"] is True  # 1.30 of 1.3
    assert judged["drain, 2 processes, Python without PGO"] is False  # 1.10 of 1.15


@each_row("has_pgo", [False, None])
def test_drain_on_a_plain_interpreter_alone_is_not_judged_as_that_of_an_optimized_one(
    has_pgo: bool | None,
) -> None:
    judged = verdicts([DRAINS[0], DRAINS[2]], has_pgo=has_pgo)
    assert judged["drain, 2 processes, Python with PGO"] is None
    assert judged["drain, 2 processes, Python without PGO"] is True


def test_rate_is_compared_with_the_best_queue_on_postgres() -> None:
    name = "8 producers"
    rivals = [figure("submit", name, 1_000.0, "oban"), figure("submit", name, 2_000.0, "pgqueuer")]
    redis = figure("submit", name, 90_000.0, "dramatiq")
    (row,) = [
        one
        for one in targets.judge(Figures([figure("submit", name, 5_100.0), *rivals, redis]), has_pgo=True)
        if one.target.name == "submit, 8 callers"
    ]
    assert row.reached is not None
    assert row.reached.value == 2.55
    assert row.reached.about == "5,100 beside 2,000 jobs/s of pgqueuer"
    assert row.verdict.is_good


@each_row("ours, theirs, expected", [(2.1, 2.4, True), (2.1, 2.0, False)])
def test_latency_is_better_if_it_is_less(ours: float, theirs: float, expected: bool) -> None:
    figures = [
        figure("idle", idle.P50, ours, unit="ms"),
        figure("idle", idle.P50, theirs, "graphile-worker", "ms"),
    ]
    assert verdicts(figures)["idle, p50"] is True
    assert verdicts(figures)["idle, p50, beside graphile-worker"] is expected


@each_row("ratio, expected", [(0.96, True), (0.52, False)])
def test_share_that_is_left_beside_a_held_transaction_has_a_least(ratio: float, expected: bool) -> None:
    figures = [figure("backlog", backlog.SHARE, ratio, unit="× clean")]
    assert verdicts(figures)["transaction held open for 80 s, backlog"] is expected


@each_row("ratio, expected", [(1.01, True), (1.07, False)])
def test_cost_beside_finished_jobs_has_a_most(ratio: float, expected: bool) -> None:
    figures = [figure("history", history.COST, ratio, unit="× plain")]
    assert verdicts(figures)["10,000,000 finished jobs beside a drain"] is expected


def test_run_without_a_figure_leaves_its_target_open() -> None:
    judged = targets.judge(Figures([]), has_pgo=True)
    assert {one.verdict.is_good for one in judged} == {None}
    rows = targets.as_table(judged).splitlines()[2:]
    assert all("| not measured |" in row for row in rows)
    assert len(rows) == len(targets.TARGETS)


def test_table_has_target_value_and_verdict() -> None:
    table = targets.as_table(targets.judge(Figures(DRAINS), has_pgo=True))
    assert (
        "| drain, 2 processes, Python without PGO | ≥ 1.15× | 1.10× | **missed** "
        "| 33,000 beside 30,000 jobs/s of graphile-worker |"
    ) in table


def test_every_scenario_of_the_targets_is_on_the_page_too() -> None:
    assert set(targets.SCENARIOS) <= command.TABLE.keys()
    assert targets.PEERS_IN.keys() <= set(targets.SCENARIOS) & method.SCENARIOS.keys()


def test_run_for_the_targets_measures_the_shape_that_is_judged_alone() -> None:
    stand = Stand("postgres://nowhere", 1)
    assert e2e.shapes(stand) == [(2, 80), (8, 20)]
    stand.is_brief = True
    assert e2e.shapes(stand) == [(2, 80)]


def test_scenario_that_fails_is_a_failed_verdict_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: Stand) -> list[Figure]:
        raise RuntimeError("no room")

    async def runs(_: Stand) -> list[Figure]:
        return [DRAINS[0]]

    async def describe(*_: object) -> dict[str, object]:
        return {}

    monkeypatch.setitem(command.SCENARIOS, "bulk", fails)
    monkeypatch.setitem(command.SCENARIOS, "drain", runs)
    monkeypatch.setattr(machine, "describe", describe)
    monkeypatch.setattr(machine, "line", str)
    stand = Stand("postgres://nowhere", 1)
    monkeypatch.setattr(stand, "look_around", describe)

    document = command.measure(stand, ["bulk", "drain"], ())

    assert document.figures == [DRAINS[0]]
    (verdict,) = document.verdicts
    assert (verdict.about, verdict.is_good) == ("bulk", False)
    assert "no room" in verdict.reason


def test_peers_that_targets_compare_with_keep_their_jobs_in_postgres() -> None:
    in_postgres = {name for name, peer in catalogue.PEERS.items() if peer.store == "postgres"}
    assert set(targets.POSTGRES_PEERS) == in_postgres
    assert set(targets.PEERS) <= in_postgres


def test_page_explains_every_scenario_of_its_tables() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    (method,) = re.findall(
        r"^\| scenario \| work \| clock \|\n\|-.*?\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL
    )
    explained = {name for row in method.splitlines() for name in row.split("|")[1].strip().split(", ")}
    assert explained == command.TABLE.keys()
