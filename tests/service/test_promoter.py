"""The promoter wakes dispatch, and sleeps until the next job is due."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.jobs.reports import Promotion
from pulse_server.work.submissions import PROMOTE_SHORTEST_SLEEP, Promoter
from tests.fakes.replica import Replica, StoredReplica
from tests.fakes.store import a_job
from tests.rows import each_row

INTERVAL = timedelta(milliseconds=500)
SHORTEST = PROMOTE_SHORTEST_SLEEP


class NextDue:
    """Has nothing due, and the next job in this time."""

    def __init__(self, next_due_in: timedelta | None) -> None:
        self.next_due_in = next_due_in

    async def promote_due(self, limit: int) -> Promotion:
        return Promotion(0, frozenset(), self.next_due_in)


@each_row(
    "next_due_in, sleep",
    [
        (None, INTERVAL),
        (timedelta(hours=1), INTERVAL),
        (timedelta(milliseconds=120), timedelta(milliseconds=120)),
        (SHORTEST / 2, SHORTEST),
        (timedelta(0), SHORTEST),
    ],
)
async def test_sleep_lasts_until_the_next_job_is_due_within_bounds(
    next_due_in: timedelta | None, sleep: timedelta
) -> None:
    promoter = Promoter(cast(Any, NextDue(next_due_in)), Replica().publisher, interval=INTERVAL)

    assert await promoter.tick() == sleep


async def test_promoted_topics_wake_dispatch(replica: StoredReplica) -> None:
    due, later = a_job("email", delay=timedelta(hours=1)), a_job("sms", delay=timedelta(hours=1))
    await replica.store.submit(due, later)
    await replica.store.time.make_due(due.id)

    await Promoter(replica.repo, replica.publisher, interval=INTERVAL).tick()

    assert replica.roster.woken == [{"email"}]


async def test_nothing_due_wakes_no_dispatcher(replica: StoredReplica) -> None:
    await replica.store.submit(a_job(delay=timedelta(hours=1)))

    await Promoter(replica.repo, replica.publisher, interval=INTERVAL).tick()

    assert replica.roster.woken == []


async def test_full_batches_are_followed_at_once(
    replica: StoredReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.work.submissions.PROMOTE_BATCH", 2)
    ids = await replica.store.submit(*[a_job(delay=timedelta(hours=1)) for _ in range(5)])
    await replica.store.time.make_due(*ids)

    await Promoter(replica.repo, replica.publisher, interval=INTERVAL).tick()

    assert replica.repo.calls == ["insert_jobs", "promote_due", "promote_in_turn", "promote_due"]
    assert all(job.ready for job in await replica.jobs())


async def test_no_topic_waits_for_all_that_another_has_due(
    replica: StoredReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.work.submissions.PROMOTE_BATCH", 2)
    flood = [a_job("flood", delay=timedelta(hours=1)) for _ in range(20)]
    others = [a_job(topic, delay=timedelta(hours=1)) for topic in ("email", "sms")]
    ids = await replica.store.submit(*flood, *others)
    await replica.store.time.make_due(*ids)

    await Promoter(replica.repo, replica.publisher, interval=INTERVAL).tick()

    assert replica.roster.woken[:2] == [{"flood"}, {"email", "flood"}]
    assert {"sms"} in replica.roster.woken[2:6]


async def test_outage_is_raised_for_the_loop_to_meet_again(replica: StoredReplica) -> None:
    replica.repo.is_away = True

    with pytest.raises(Unavailable):
        await Promoter(replica.repo, replica.publisher, interval=INTERVAL).tick()
