"""The Grafana dashboard: valid, legible, and over metrics that exist."""

import json
import re
from itertools import combinations
from typing import Any

from tests.deploy.deployment_files import DEPLOY, FOREIGN_LABELS, labels_matched, metrics_named, series_labels
from tests.rows import each_row

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "pulse.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in GRAPHS for target in panel["targets"]]
SERIES = series_labels()


def queries() -> list[str]:
    variables = [entry["query"] for entry in DASHBOARD["templating"]["list"] if entry["type"] == "query"]
    return [*EXPRESSIONS, *(variable["query"] for variable in variables)]


@each_row("query", queries())
def test_queried_metrics_exist(query: str) -> None:
    assert metrics_named(query)
    assert metrics_named(query) <= SERIES.keys()


@each_row("query", queries())
def test_queried_labels_exist(query: str) -> None:
    for metric, label in labels_matched(query):
        assert label in SERIES[metric] | FOREIGN_LABELS, metric
    known = frozenset[str]().union(*(SERIES[metric] for metric in metrics_named(query)))
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        # A gauge of the whole database is grouped by a label that it does not have, so that it may get one.
        assert set(grouped.split(", ")) <= known | FOREIGN_LABELS | {"topic"}


@each_row("name", sorted(SERIES))
def test_every_metric_is_shown(name: str) -> None:
    """A metric that no panel shows need not be counted."""
    if name in NOT_SHOWN:
        return
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    assert any(family in query for query in queries())


# pulse_ready and pulse_process_up are for alerts: a dashboard shows their servers by name already. So is
# pulse_completed_days_ahead, which is 2 on every day that is not missing, and pulse_database_full.
NOT_SHOWN = {"pulse_ready", "pulse_process_up", "pulse_completed_days_ahead", "pulse_database_full"}


@each_row("expression", EXPRESSIONS)
def test_gauges_of_the_database_are_not_added_up_over_servers(expression: str) -> None:
    """Each server samples the same database: a sum over two of them would be twice the truth."""
    shared = {"pulse_ready_jobs", "pulse_running_jobs", "pulse_dead_letters", "pulse_database_jobs_bytes"}
    if metrics_named(expression) & shared:
        assert "max" in expression


@each_row("panel", GRAPHS)
def test_panels_say_what_they_show_and_in_which_unit(panel: dict[str, Any]) -> None:
    assert len(panel["description"]) > 20
    assert panel["fieldConfig"]["defaults"]["unit"]


def test_seconds_are_shown_as_seconds() -> None:
    for panel in GRAPHS:
        if all(re.search(r"_seconds(_bucket)?\{", target["expr"]) for target in panel["targets"]):
            assert panel["fieldConfig"]["defaults"]["unit"] == "s", panel["title"]


def test_panels_do_not_overlap_and_fit_the_width() -> None:
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24, panel["title"]
    for one, other in combinations(PANELS, 2):
        a, b = one["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (one["title"], other["title"])


def test_panels_have_ids_and_titles_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)


def test_everything_asks_the_chosen_data_source() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in GRAPHS:
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])


def test_variables_are_those_that_the_panels_use() -> None:
    defined = {entry["name"] for entry in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(PANELS)))
    assert used == defined
