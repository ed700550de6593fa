"""The sweep of limits: when it asks, and what it does with the answers. ADR-0064"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from pulse.topic_settings import Rate
from pulse_server.base.metrics import MOST_TOPICS
from pulse_server.topics.rules import Limits, Repaired
from pulse_server.topics.service import FORGETTING_ROUNDS, FORGOTTEN_LANES, LimitSweep
from tests.fakes.dispatch import limit_topic, unlimit_topic
from tests.fakes.replica import Replica

HOUR = timedelta(hours=1)


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.fixture
def sweep(replica: Replica) -> LimitSweep:
    return LimitSweep(replica.limits, replica.gate, replica.publisher, replica.metrics)


async def test_nothing_is_asked_while_no_topic_is_limited(replica: Replica, sweep: LimitSweep) -> None:
    await sweep.tick()

    assert not replica.limits.calls


async def test_repairs_are_counted_logged_and_wake_dispatch(
    replica: Replica, sweep: LimitSweep, caplog: pytest.LogCaptureFixture
) -> None:
    limit_topic(replica.switches, "sync")
    await replica.gate.refresh()
    replica.limits.repaired = Repaired(pools=1, lanes=2)
    replica.roster.woken.clear()

    await sweep.tick()
    await sweep.tick()

    assert replica.metrics.pools_repaired.values == {(): 1}
    assert replica.metrics.lanes_repaired.values == {(): 2}
    assert replica.roster.woken == [{"sync"}]
    assert [record.levelno for record in caplog.records if record.message == "limits_repaired"] == [
        logging.ERROR
    ]


async def test_topic_whose_policy_is_gone_is_plain_here_and_at_the_others(
    replica: Replica, sweep: LimitSweep
) -> None:
    limit_topic(replica.switches, "sync", "mail")
    await replica.gate.refresh()
    replica.limits.retired = ["sync"]
    unlimit_topic(replica.switches, "sync")

    await sweep.tick()

    assert replica.gate.state.limited.keys() == {"mail"}
    assert replica.line.gate_changes == 1
    assert replica.line.topics == [{"sync"}]


async def test_idle_lanes_are_forgotten_every_few_minutes_all_of_them(
    replica: Replica, sweep: LimitSweep
) -> None:
    limit_topic(replica.switches, "sync")
    await replica.gate.refresh()
    replica.limits.idle_lanes = FORGOTTEN_LANES + 1

    for _ in range(FORGETTING_ROUNDS):
        await sweep.tick()

    assert replica.limits.idle_lanes == 0
    assert replica.limits.calls.count("forget_lanes") == 2


async def test_limits_and_what_runs_are_gauges_while_topics_are_limited(
    replica: Replica, sweep: LimitSweep
) -> None:
    limit_topic(replica.switches, "sync", "mail")
    await replica.gate.refresh()
    replica.limits.limits = [
        Limits("sync", {"running": 5}, running=3),
        Limits("mail", {"rate": Rate(1, HOUR)}, running=1, next_start_at=datetime.now(UTC)),
    ]

    await sweep.tick()

    assert replica.metrics.limited_running.read() == {("sync",): 3, ("mail",): 1}
    assert replica.metrics.limit_in_force.read() == {("sync",): 5}
    assert replica.metrics.rate_spent.read() == {("sync",): 0, ("mail",): 1}

    unlimit_topic(replica.switches, "sync")
    unlimit_topic(replica.switches, "mail")
    await replica.gate.refresh()
    await sweep.tick()
    assert replica.metrics.limited_running.read() == {}


async def test_topic_with_a_worker_has_its_gauge_however_many_topics_are_limited(
    replica: Replica, sweep: LimitSweep
) -> None:
    many = [f"sync-{number:05}" for number in range(MOST_TOPICS + 1)]
    limit_topic(replica.switches, *many, "zoom")
    await replica.gate.refresh()
    replica.metrics.topic("zoom", is_worked=True)
    replica.limits.limits = [Limits(topic, {"running": 1}, running=1) for topic in (*many, "zoom")]

    await sweep.tick()

    assert replica.metrics.topic_limited.read()["zoom",] == 1
