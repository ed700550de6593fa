"""Wake-ups: this server first, the others only where it has no free slot."""

from __future__ import annotations

from datetime import UTC, datetime

from pulse_server.jobs.rules import Cancellation, Claim, Job, JobStatus
from pulse_server.wakeups.watchers import Wakeup
from tests.dispatch.hub_under_test import a_session
from tests.fakes.dispatch import RecordingRoster
from tests.fakes.replica import Replica

CLAIM = Claim("j", "A", 1, 1)


def test_work_that_a_worker_here_can_take_is_not_announced() -> None:
    replica = Replica(roster=RecordingRoster(has_slots_for={"email"}))

    replica.publisher.promoted({"email"})

    assert replica.roster.woken == [{"email"}]
    assert replica.line.topics == []


def test_only_the_topics_that_no_worker_here_can_take_are_announced() -> None:
    replica = Replica(roster=RecordingRoster(has_slots_for={"email"}))

    replica.publisher.promoted({"email", "sms"})

    assert replica.line.topics == [{"sms"}]


def test_topic_with_fewer_free_slots_here_than_new_jobs_is_announced(replica: Replica) -> None:
    replica.roster.add(a_session("w1", "email", capacity=2), [])

    replica.publisher.promoted({"email"}, jobs=2)
    replica.publisher.promoted({"email"}, jobs=3)

    assert replica.line.topics == [{"email"}]


def test_server_without_workers_announces_everything(replica: Replica) -> None:
    replica.publisher.promoted({"email"})

    assert replica.line.topics == [{"email"}]


async def test_ended_claims_are_stopped_here_and_elsewhere(replica: Replica) -> None:
    now = datetime.now(UTC)
    job = Job(CLAIM.job_id, "email", JobStatus.CANCELED, 0, 1, 5, now, now)

    replica.publisher.canceled([Cancellation(job, CLAIM)], "")

    assert replica.roster.stopped == [CLAIM]
    assert replica.line.ended == [{CLAIM}]


def test_nothing_is_said_about_nothing(replica: Replica) -> None:
    replica.publisher.promoted(set())
    replica.publisher.canceled([], "")

    assert (replica.roster.woken, replica.line.topics, replica.line.ended) == ([], [], [])


async def test_wakeup_of_another_replica_reaches_dispatch_and_is_not_passed_on(replica: Replica) -> None:
    session = a_session("A")
    replica.roster.add(session, [CLAIM])
    replica.claims.gone = {CLAIM}

    replica.line.deliver(Wakeup(frozenset({"sms"}), (CLAIM,)))
    await replica.reconciler.look_up_reported()

    assert replica.roster.woken == [{"sms"}]
    assert replica.roster.stopped == [CLAIM]
    assert (replica.line.topics, replica.line.ended) == ([], [])


def test_wakeup_without_topics_means_everywhere(replica: Replica) -> None:
    replica.line.deliver(Wakeup(topics=None))

    assert replica.roster.woken == [None]


async def test_wakeup_before_dispatch_runs_is_kept_for_it(replica: Replica) -> None:
    replica.line.deliver(Wakeup(topics=None))

    assert replica.roster.wakeup.is_set()
