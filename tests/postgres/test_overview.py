"""What operators see at a glance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pulse_server.base.ids import new_id
from pulse_server.base.metrics import Buckets
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.jobs.rules import JobStatus
from pulse_server.views.servers import Server
from pulse_server.views.statistics import (
    ALL_TOPICS,
    Counts,
    Minute,
    Rates,
    TopicActivity,
    TopicBuckets,
    TopicDepth,
    TopicRates,
)
from tests.fakes.store import a_job
from tests.postgres.glance import Glance

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def activity(topic: str = "email", wait: Buckets = {}, run: Buckets = {}, **counts: int) -> TopicActivity:  # noqa: B006
    return TopicActivity(topic, Counts(**counts), wait, run)


# --- depths


async def test_depth_counts_each_job_under_its_state_and_no_completed_one(glance: Glance) -> None:
    for status in reversed(JobStatus):
        await glance.store.reach(status)
    await glance.store.submit(a_job(), a_job(delay=HOUR))
    await glance.store.reach(JobStatus.COMPLETED, topic="done")

    (depth,) = await glance.topics.topic_depths()

    assert depth == TopicDepth(
        "email", 2, 2, 0, 1, 1, 1, oldest_ready_at=depth.oldest_ready_at
    )  # ready, waiting, for jobs, running, dead-lettered, canceled


async def test_oldest_ready_job_is_the_one_that_is_longest_due(glance: Glance) -> None:
    first, *_ = await glance.store.submit(a_job(), a_job(priority=9), a_job(delay=HOUR))

    (depth,) = await glance.topics.topic_depths()

    assert depth.oldest_ready_at == (await glance.store.job(first)).next_run_at


async def test_topics_are_counted_apart(glance: Glance) -> None:
    await glance.store.submit(a_job("email"), a_job("sms"), a_job("sms"))

    depths = {depth.topic: depth.ready for depth in await glance.topics.topic_depths()}

    assert depths == {"email": 1, "sms": 2}


# --- rates


async def test_what_happens_now_counts_as_recent_and_once_its_minute_is_over_in_the_rates(
    glance: Glance,
) -> None:
    await glance.minutes.add_topic_minutes([activity(submitted=3, completed=2, failed=1, dead_lettered=1)])
    counted = Rates(3, 2, 1, 1)

    none = Rates()

    assert await glance.topics.topic_rates() == {"email": TopicRates(none, none, counted)}
    await glance.elapse(MINUTE)
    assert await glance.topics.topic_rates() == {"email": TopicRates(counted, counted, counted)}
    await glance.elapse(4 * MINUTE)
    assert await glance.topics.topic_rates() == {"email": TopicRates(none, counted, counted)}
    await glance.elapse(MINUTE)
    assert await glance.topics.topic_rates() == {"email": TopicRates(none, counted, none)}
    await glance.elapse(55 * MINUTE)
    assert await glance.topics.topic_rates() == {}


async def test_reports_of_several_servers_add_up(glance: Glance) -> None:
    await glance.minutes.add_topic_minutes([activity("sms", submitted=1), activity("email", submitted=2)])
    await glance.minutes.add_topic_minutes([activity("email", submitted=5, completed=1)])
    await glance.elapse(MINUTE)
    await glance.minutes.add_topic_minutes([activity("email", submitted=10)])
    await glance.elapse(MINUTE)

    rates = await glance.topics.topic_rates()

    assert rates["email"] == TopicRates(Rates(10), Rates(17, 1), Rates(17, 1))
    assert rates["sms"] == TopicRates(Rates(), Rates(1), Rates(1))


async def test_all_topics_together_are_no_topic(glance: Glance) -> None:
    await glance.minutes.add_topic_minutes([activity(ALL_TOPICS, submitted=1, wait={1: 1})])
    await glance.elapse(MINUTE)

    assert await glance.topics.topic_rates() == {}
    assert await glance.topics.topic_buckets() == {}


async def test_buckets_of_the_last_whole_hour_add_up_by_topic(glance: Glance) -> None:
    await glance.minutes.add_topic_minutes([activity("email", wait={1: 1}), activity("sms", run={103: 2})])
    await glance.elapse(59 * MINUTE)
    await glance.minutes.add_topic_minutes(
        [activity("email", wait={1: 2, 7: 3}), activity("quiet", submitted=1)]
    )
    await glance.elapse(MINUTE)
    await glance.minutes.add_topic_minutes([activity("email", wait={1: 50})])  # its minute is not over

    assert await glance.topics.topic_buckets() == {
        "email": TopicBuckets({1: 3, 7: 3}, {}),
        "sms": TopicBuckets({}, {103: 2}),
    }
    await glance.elapse(MINUTE)
    assert await glance.topics.topic_buckets() == {"email": TopicBuckets({1: 52, 7: 3}, {})}


# --- minute by minute


async def test_reports_of_several_servers_on_a_minute_add_up_by_bucket(glance: Glance) -> None:
    await glance.minutes.add_topic_minutes([activity(submitted=1, wait={0: 1, 40: 2}, run={9: 1})])
    await glance.minutes.add_topic_minutes(
        [activity(completed=2, wait={40: 3, 103: 1}), activity("sms", wait={0: 9})]
    )
    await glance.minutes.add_topic_minutes([activity(submitted=3)])

    (minute,) = await glance.minutes.topic_minutes("email", 1)

    assert minute == Minute(minute.at, Counts(4, 2), {0: 1, 40: 5, 103: 1}, {9: 1})


async def test_minutes_are_listed_oldest_first_without_a_gap(glance: Glance) -> None:
    await glance.minutes.add_topic_minutes([activity(submitted=1)])
    await glance.elapse(2 * MINUTE)
    await glance.minutes.add_topic_minutes(
        [activity(submitted=2, failed=3, retried=4, dead_lettered=5, canceled=6)]
    )

    minutes = await glance.minutes.topic_minutes("email", 4)

    assert [minute.counts for minute in minutes] == [
        *(Counts(), Counts(1), Counts()),
        Counts(submitted=2, completed=0, failed=3, retried=4, dead_lettered=5, canceled=6),
    ]
    assert [minute.at - minutes[0].at for minute in minutes] == [n * MINUTE for n in range(4)]
    assert minutes[0].at.second == minutes[0].at.microsecond == 0
    assert [minute.counts for minute in await glance.minutes.topic_minutes("email", 2)] == [
        minute.counts for minute in minutes[2:]
    ]


async def test_minutes_of_what_never_happened_are_empty(glance: Glance) -> None:
    assert [minute[1:] for minute in await glance.minutes.topic_minutes(ALL_TOPICS, 3)] == 3 * [
        (Counts(), {}, {}, None)
    ]


async def test_old_minutes_are_forgotten(glance: Glance) -> None:
    await glance.minutes.add_topic_minutes([activity("old", submitted=1)])
    await glance.elapse(30 * MINUTE)
    await glance.minutes.add_topic_minutes([activity("young", submitted=1)])
    await glance.elapse(MINUTE)

    await glance.minutes.forget_topic_minutes(10 * MINUTE)

    assert (await glance.topics.topic_rates()).keys() == {"young"}


# --- who holds what


async def test_holding_lists_the_longest_held_first_and_the_total(glance: Glance) -> None:
    claims = [await glance.store.start("A", topic=f"t{number}") for number in range(4)]
    other = await glance.store.start("B")
    await glance.store.reach(JobStatus.COMPLETED)

    holdings = await glance.servers.held_jobs(3)

    assert holdings.keys() == {"A", "B"}
    assert holdings["A"].count == 4
    assert [job.job_id for job in holdings["A"].jobs] == [claim.job_id for claim in claims[:3]]
    assert [job.job_id for job in holdings["B"].jobs] == [other.job_id]
    held, row = holdings["B"].jobs[0], await glance.store.job(other.job_id)
    assert (held.topic, held.worker_id, held.attempt) == ("email", "B", 1)
    assert (held.since, held.lease_until) == (row.started_at, row.lease_until)


# --- servers

WORKER = ConnectedWorker("w1", ("email", "sms"), 7, datetime(2030, 1, 1, 12, 30, tzinfo=UTC))


async def test_server_is_listed_by_its_last_report(glance: Glance) -> None:
    first, second = new_id(), new_id()
    await glance.servers.record_server(first, "b:1", [WORKER])
    await glance.servers.record_server(second, "a:1", [WORKER])
    await glance.servers.record_server(second, "a:1", [])

    listed = await glance.servers.list_servers(MINUTE)
    assert [server._replace(started_at=None, version="") for server in listed] == [
        Server(second, "a:1", ()),
        Server(first, "b:1", (WORKER,)),
    ]


async def test_start_of_a_server_is_its_first_report(glance: Glance) -> None:
    server_id = new_id()
    await glance.servers.record_server(server_id, "a:1", [])
    ((*_, started_at),) = await glance.servers.list_servers(MINUTE)
    await glance.servers.record_server(server_id, "a:1", [WORKER])

    assert started_at is not None
    assert [server.started_at for server in await glance.servers.list_servers(MINUTE)] == [started_at]


async def test_server_that_fell_silent_is_not_listed_and_comes_back_when_it_speaks(glance: Glance) -> None:
    server_id = new_id()
    await glance.servers.record_server(server_id, "a:1", [])
    await glance.elapse(2 * MINUTE)
    assert await glance.servers.list_servers(MINUTE) == []

    await glance.servers.record_server(server_id, "a:1", [])
    assert len(await glance.servers.list_servers(MINUTE)) == 1


async def test_server_that_leaves_takes_those_along_that_died_long_ago(glance: Glance) -> None:
    dead, alive, leaving = new_id(), new_id(), new_id()
    await glance.servers.record_server(dead, "dead", [])
    await glance.elapse(2 * HOUR)
    await glance.servers.record_server(alive, "alive", [])
    await glance.servers.record_server(leaving, "leaving", [])

    await glance.servers.forget_servers(leaving, HOUR)

    assert [server.name for server in await glance.servers.list_servers(timedelta(days=1))] == ["alive"]
