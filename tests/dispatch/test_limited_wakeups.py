"""The end of a run lets another job of a limited topic start: whom the publisher wakes for it. ADR-0064"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

import pytest

from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reports import Completions, FailureReport, TopicCompletions
from pulse_server.jobs.rules import Cancellation, Claim, Ended, Job, JobStatus, Reaped
from tests.fakes.dispatch import limit_topic
from tests.fakes.replica import Replica

CLAIM = Claim("job", "w1", 1, 1)
NOW = datetime(2030, 1, 1, tzinfo=UTC)

End: TypeAlias = Callable[[Publisher, str], None]


def completed(publisher: Publisher, topic: str) -> None:
    publisher.completed(Completions([CLAIM], [TopicCompletions(topic, [0.1], [1])]))


def failed(publisher: Publisher, topic: str) -> None:
    publisher.failed([(FailureReport(CLAIM, "no luck"), Ended(JobStatus.RETRYING, topic, 0.1))])


def snoozed(publisher: Publisher, topic: str) -> None:
    publisher.snoozed({CLAIM: Ended(JobStatus.RETRYING, topic, 0.1)})


def reaped(publisher: Publisher, topic: str) -> None:
    publisher.reaped([Reaped(CLAIM, topic, JobStatus.RETRYING, True)])


def canceled(publisher: Publisher, topic: str) -> None:
    publisher.canceled([Cancellation(a_canceled_job(topic), CLAIM)], "by hand")


def released(publisher: Publisher, topic: str) -> None:
    publisher.released([CLAIM], {CLAIM.job_id: topic})


def a_canceled_job(topic: str) -> Job:
    return Job(CLAIM.job_id, topic, JobStatus.CANCELED, 0, 1, 5, NOW, NOW)


ENDS = [completed, failed, snoozed, reaped, canceled, released]


@pytest.fixture
async def replica(replica: Replica) -> Replica:
    """A server that knows a topic with a limit, and two that share one."""
    limit_topic(replica.switches, "sync")
    limit_topic(replica.switches, "train", "infer", pool="gpu")
    await replica.gate.refresh()
    replica.roster.woken.clear()
    return replica


@pytest.mark.parametrize("end", ENDS)
def test_end_of_a_run_wakes_its_topic_here_and_at_the_others(replica: Replica, end: End) -> None:
    end(replica.publisher, "sync")

    assert replica.roster.woken == [{"sync"}]
    assert replica.line.topics == [{"sync"}]


@pytest.mark.parametrize("end", ENDS)
def test_end_of_a_run_wakes_all_topics_of_its_pool(replica: Replica, end: End) -> None:
    end(replica.publisher, "train")

    assert replica.roster.woken == [{"train", "infer"}]


def test_others_are_not_woken_where_a_slot_is_free_here(replica: Replica) -> None:
    replica.roster.has_slots_for = {"sync"}

    completed(replica.publisher, "sync")

    assert not replica.line.topics


@pytest.mark.parametrize("end", [completed, failed, snoozed, reaped, canceled])
def test_end_of_a_plain_run_wakes_nothing(replica: Replica, end: End) -> None:
    end(replica.publisher, "mail")

    assert not any(replica.roster.woken)
    assert not replica.line.topics


def test_change_of_limits_wakes_the_pool_and_has_the_other_servers_read_it(replica: Replica) -> None:
    replica.publisher.limits_changed(["infer"])

    assert replica.roster.woken == [{"train", "infer"}]
    assert replica.line.topics == [{"train", "infer"}]
    assert replica.line.gate_changes == 1
