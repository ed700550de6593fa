"""The alerts: over metrics that exist, each with a page of the runbook."""

import re
from typing import Any

from tests.deploy.deployment_files import (
    DEPLOY,
    FOREIGN_LABELS,
    ROOT,
    documents,
    labels_matched,
    metrics_named,
    series_labels,
)
from tests.rows import each_row
from tools import alert_reference

GROUPS: list[dict[str, Any]] = documents(DEPLOY / "prometheus" / "alerts.yml")[0]["groups"]
ALERTS: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
SERIES = series_labels()


def name_of(alert: dict[str, Any]) -> str:
    return str(alert["alert"])


@each_row("alert", ALERTS)
def test_metrics_and_labels_of_alerts_exist(alert: dict[str, Any]) -> None:
    expression = alert["expr"]
    assert metrics_named(expression) <= SERIES.keys()
    assert metrics_named(expression) or "up{" in expression
    for metric, label in labels_matched(expression):
        assert label in SERIES[metric] | FOREIGN_LABELS, metric


@each_row("alert", ALERTS)
def test_alerts_say_how_bad_it_is_and_what_it_means(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert all(alert["annotations"][part] for part in ("summary", "description", "look_at", "do"))


@each_row("alert", ALERTS)
def test_alerts_lead_to_their_entry_in_the_runbook(alert: dict[str, Any]) -> None:
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert page == str(alert_reference.PAGE.relative_to(ROOT))
    headings = re.findall(r"^## (\w+)$", alert_reference.page(), re.MULTILINE)
    assert alert["alert"] in headings
    assert anchor == alert["alert"].lower()


def test_alert_names_differ() -> None:
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
