"""Each alert fires for its cause, alone, and resolves. promtool evaluates the rules over made-up series."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.deploy.deployment_files import DEPLOY
from tests.deploy.test_deploy_alerts import ALERTS

RULES = DEPLOY / "prometheus" / "alerts.yml"
# Steps of two minutes: two hours of trouble, then as long without.
STEP_MINUTES = 2
TROUBLE, LATER = 60, 120


def lasting(value: float, otherwise: float = 0) -> str:
    return f"{value}x{TROUBLE} {otherwise}x{TROUBLE}"


def growing(by: float) -> str:
    return f"0+{by}x{TROUBLE} {by * TROUBLE}x{TROUBLE}"


CALM = {
    'up{job="pulsed", instance="a"}': "1x120",
    "pulse_ready": "1x120",
    "pulse_workers_connected": "2x120",
    "pulse_workers_capacity": "10x120",
    "pulse_workers_held_jobs": "1x120",
    'pulse_dispatch_paused{topic=""}': "0x120",
    'pulse_oldest_ready_seconds{topic="mail"}': "0x120",
    'pulse_jobs_claimed_total{topic="mail"}': "0+60x120",
    'pulse_jobs_completed_total{topic="mail"}': "0+60x120",
    'pulse_jobs_failed_total{topic="mail", kind="error"}': "0x120",
    'pulse_statement_failures_total{statement="claim_batch"}': "0x120",
    "pulse_database_full": "0x120",
    "pulse_completed_days_ahead": "2x120",
    "pulse_database_oldest_transaction_seconds": "0x120",
}
OLD = {'pulse_oldest_ready_seconds{topic="mail"}': lasting(4000)}
UNCLAIMED = {'pulse_jobs_claimed_total{topic="mail"}': f"0x{TROUBLE} 0+60x{TROUBLE}"}
FULL_WORKERS = {"pulse_workers_held_jobs": lasting(10, 1)}


class Case(NamedTuple):
    """Series instead of those of a calm queue, and the alerts that fire while the trouble lasts."""

    name: str
    series: dict[str, str]
    fires: set[tuple[str, str]]


def one(alert: str, series: dict[str, str], topic: str = "") -> Case:
    return Case(alert, series, {(alert, topic)})


SLOW_BUCKETS = {
    f'pulse_statement_seconds_bucket{{statement="claim_batch", le="{le}"}}': growing(by)
    for le, by in (("0.1", 0), ("1", 60), ("+Inf", 60))
}
BUSY_POOL = {
    'pulse_database_connections{pool="hot", state="busy"}': lasting(11),
    'pulse_database_connections{pool="hot", state="allowed"}': "11x120",
}
OUTAGE = {
    'pulse_statement_failures_total{statement="claim_batch"}': growing(60),
    'pulse_statement_failures_total{statement="ping"}': growing(30),
    "pulse_ready": lasting(0, 1),
    "pulse_vitals_age_seconds": f"0+60x{TROUBLE} 0x{TROUBLE}",
    'pulse_loop_failures_total{loop="promoter"}': growing(60),
}
CASES = [
    one(
        "PulseDown",
        {'up{job="pulsed", instance="a"}': lasting(0, 1), **dict.fromkeys(list(CALM)[1:], "_x120")},
    ),
    one("PulseServerDown", {'up{job="pulsed", instance="b"}': lasting(0, 1)}),
    one("PulseProcessDown", {'pulse_process_up{process="1"}': lasting(0, 1)}),
    one("PulseNotReady", {"pulse_ready": lasting(0, 1)}),
    one("PulseNoWorkers", OLD | UNCLAIMED | {"pulse_workers_connected": lasting(0, 2)}),
    one("PulseQueueStuck", OLD | UNCLAIMED, "mail"),
    one("PulseQueueSlow", OLD, "mail"),
    one("PulseWorkersSaturated", OLD | FULL_WORKERS),
    one("PulseDispatchPaused", OLD | UNCLAIMED | {'pulse_dispatch_paused{topic=""}': lasting(1)}),
    one(
        "PulseDeadLetters",
        {
            'pulse_jobs_dead_lettered_total{topic="mail"}': growing(60),
            'pulse_jobs_failed_total{topic="mail", kind="error"}': growing(60),
        },
        "mail",
    ),
    one("PulseJobsFailing", {'pulse_jobs_failed_total{topic="mail", kind="error"}': growing(60)}, "mail"),
    one(
        "PulseLeasesLapse",
        {
            'pulse_jobs_reaped_total{topic="mail"}': growing(60),
            'pulse_jobs_failed_total{topic="mail", kind="lease_expired"}': growing(60),
        },
        "mail",
    ),
    one("PulseSchedulesLate", {"pulse_schedule_lag_seconds": lasting(90)}),
    one(
        "PulseOldTransaction",
        {
            "pulse_database_oldest_transaction_seconds": lasting(3600),
            "pulse_database_jobs_dead_rows": lasting(10**6),
        },
    ),
    one("PulseDayMissing", {"pulse_completed_days_ahead": lasting(0, 2)}),
    one("PulseTableBloated", {"pulse_database_jobs_dead_rows": lasting(10**6)}),
    one("PulseDatabaseSlow", SLOW_BUCKETS | BUSY_POOL),
    one("PulseDatabaseFailing", OUTAGE | UNCLAIMED | OLD),
    one("PulseDiskFull", OUTAGE | {"pulse_database_full": lasting(1), "pulse_ready": "1x120"}),
    one("PulseRunsLong", {'pulse_long_runs{topic="mail"}': lasting(2)}, "mail"),
    one("PulseConnectionsExhausted", BUSY_POOL),
    one("PulseVitalsStale", {"pulse_vitals_age_seconds": lasting(900)}),
    one("PulseLoopFailing", {'pulse_loop_failures_total{loop="promoter"}': growing(60)}),
    one(
        "PulseLimitsRepaired",
        {"pulse_pools_repaired_total": growing(1), "pulse_lanes_repaired_total": "0x120"},
    ),
    one(
        "PulseRateSpent",
        OLD | {'pulse_rate_spent{topic="mail"}': lasting(1), 'pulse_topic_limited{topic="mail"}': lasting(1)},
        "mail",
    ),
    one("PulseInternalErrors", {'pulse_rpcs_total{method="SubmitJob", code="INTERNAL"}': growing(1)}),
    one("PulseLoginsRefused", {'pulse_logins_total{result="wrong"}': growing(60)}),
    # --- no alert
    Case("a calm queue", {}, set()),
    Case(
        "a topic that is full by its own limit, lane, pool or order",
        OLD | UNCLAIMED | FULL_WORKERS | {'pulse_topic_limited{topic="mail"}': lasting(1)},
        set(),
    ),
    Case("a paused topic", OLD | UNCLAIMED | {'pulse_dispatch_paused{topic="mail"}': lasting(1)}, set()),
    # --- no doubles
    Case(
        "everything is paused",
        OLD
        | UNCLAIMED
        | {'pulse_dispatch_paused{topic=""}': lasting(1), "pulse_workers_connected": lasting(0, 2)},
        {("PulseDispatchPaused", "")},
    ),
    Case(
        "handlers hang in all slots",
        OLD | UNCLAIMED | FULL_WORKERS | {'pulse_long_runs{topic="mail"}': lasting(10)},
        {("PulseQueueStuck", "mail")},
    ),
]


def rule_test(case: Case) -> dict[str, Any]:
    series = CALM | case.series

    def firing(step: int, alerts: set[tuple[str, str]]) -> dict[str, Any]:
        labels = [f'alertname="{alert}"' + (f', topic="{topic}"' if topic else "") for alert, topic in alerts]
        return {
            "expr": 'count by (alertname, topic) (ALERTS{alertstate="firing"})',
            "eval_time": f"{step * STEP_MINUTES}m",
            "exp_samples": [{"labels": f"{{{label}}}", "value": 1} for label in labels],
        }

    return {
        "name": case.name,
        "interval": f"{STEP_MINUTES}m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [firing(TROUBLE - 1, case.fires), firing(LATER, set())],
    }


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None and os.environ.get("PULSE_REQUIRE_PROMTOOL"):
        pytest.fail("promtool is not installed, but PULSE_REQUIRE_PROMTOOL is set.")
    if found is None:
        pytest.skip("promtool is not installed. Debian has it in the package prometheus.")
    return found


def test_every_alert_fires_alone_and_resolves(promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "rules_test.yml"
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP_MINUTES}m",
        "tests": [rule_test(c) for c in CASES],
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert {alert for case in CASES for alert, _ in case.fires} == {str(alert["alert"]) for alert in ALERTS}
