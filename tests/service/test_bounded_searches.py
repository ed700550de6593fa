"""Searches that no index serves: each call reads a bounded number of jobs, and none is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulse_server.base.ids import PageKey
from pulse_server.jobs.rules import LIVE, JobFilter, JobStatus
from pulse_server.work import jobs as bulk
from pulse_server.work import jobs as service
from pulse_server.work.jobs import Jobs, Selections
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job
from tests.rows import each_row

RARE = JobFilter(metadata={"tenant": "rare"})


@pytest.fixture
def jobs(replica: StoredReplica, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    for module in (service, bulk):
        monkeypatch.setattr(module, "SEARCHED_JOBS", 4)
    monkeypatch.setattr(service, "GLANCED_JOBS", 2)
    monkeypatch.setattr(service, "SEARCHED_FOR_ONE", 5)
    return Jobs(replica.repo, replica.publisher)


async def submit(replica: StoredReplica, tenants: str) -> list[str]:
    """Submit a job for each letter, the oldest first; r is the rare tenant."""
    names = {"r": "rare", "o": "other"}
    return [
        job_id
        for letter in tenants
        for job_id in await replica.store.submit(a_job(metadata={"tenant": names[letter]}))
    ]


async def test_search_continues_page_by_page_until_it_has_read_all(
    replica: StoredReplica, jobs: Jobs
) -> None:
    ids = await submit(replica, "rooooroooo")
    pages, token = [], ""
    while True:
        page = await jobs.list(RARE, limit=3, offset=0, token=token)
        pages.append([job.id for job in page.entries])
        assert (page.looked_back_to is not None) == bool(page.next_token)
        if not (token := page.next_token):
            break
    assert pages == [[], [ids[5]], [ids[0]]]


async def test_full_page_is_no_cut(replica: StoredReplica, jobs: Jobs) -> None:
    await submit(replica, "rrrrrr")
    page = await jobs.list(RARE, limit=2, offset=0, token="")
    assert (len(page.entries), page.looked_back_to) == (2, None)
    assert page.next_token


async def test_list_of_a_topic_reads_a_bounded_number_of_jobs_and_more_to_find_one(
    replica: StoredReplica, jobs: Jobs
) -> None:
    topics = ["rare", *["often"] * 6, "rare", *["often"] * 4, "rare", *["often"] * 3]
    ids = {
        number: await replica.store.reach(JobStatus.COMPLETED, topic=topic)
        for number, topic in enumerate(topics)
    }
    of_topic = JobFilter(frozenset({"rare"}))
    for wanted in (of_topic, replace(of_topic, statuses=frozenset({JobStatus.COMPLETED}))):
        pages, token = [], ""
        while True:
            page = await jobs.list(wanted, limit=3, offset=0, token=token)
            pages.append([job.id for job in page.entries])
            assert (page.looked_back_to is not None) == bool(page.next_token)
            if not (token := page.next_token):
                break
        # The first four jobs have one. Of the next four none is, but the fifth. Of the next five none is.
        assert pages == [[ids[12]], [ids[7]], [], [ids[0]]]


async def test_page_that_a_glance_fills_reads_no_further(
    replica: StoredReplica, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(replica, "oooorr")
    ends = []

    async def search_end(wanted: JobFilter, token: str, most: int) -> PageKey | None:
        ends.append(most)
        return await Jobs.search_end(jobs, wanted, token, most)

    monkeypatch.setattr(jobs, "search_end", search_end)
    await jobs.list(RARE, limit=1, offset=0, token="")
    assert ends == [2]
    await jobs.list(RARE, limit=2, offset=0, token="")
    assert ends == [2, 2, 4]


@each_row(
    "wanted",
    [
        JobFilter(frozenset({"mail"}), LIVE),
        JobFilter(frozenset({"mail"}), frozenset({JobStatus.DEAD_LETTERED})),
        JobFilter(frozenset({"mail"}), lane="acme"),
        JobFilter(schedule_id="0190f3a2-7b1c-7000-8009-000000000001"),
        JobFilter(statuses=frozenset({JobStatus.COMPLETED})),
    ],
)
def test_filter_with_an_index_of_its_own_passes_no_job_of_another_topic(wanted: JobFilter) -> None:
    assert not wanted.passes_other_topics
    assert wanted.as_read() == wanted


async def test_list_that_an_index_serves_is_not_cut(replica: StoredReplica, jobs: Jobs) -> None:
    await submit(replica, "oooooo")
    page = await jobs.list(JobFilter(statuses=LIVE), limit=9, offset=0, token="")
    assert (len(page.entries), page.next_token, page.looked_back_to) == (6, "", None)


async def test_action_reaches_every_job_that_matches(replica: StoredReplica, jobs: Jobs) -> None:
    ids = await submit(replica, "rooooroooo")
    selections = Selections(replica.repo, jobs)
    changed, token = [], ""
    while True:
        batch = await selections.cancel(RARE, "", limit=5, token=token)
        changed.append(batch.changed)
        if not (token := batch.next_token):
            break
    assert changed == [0, 1, 1]
    canceled = {job_id for job_id in ids if await replica.store.status(job_id) is JobStatus.CANCELED}
    assert canceled == {ids[0], ids[5]}


async def test_count_states_that_there_may_be_more(replica: StoredReplica, jobs: Jobs) -> None:
    await submit(replica, "rror")
    selections = Selections(replica.repo, jobs)
    exact = await selections.count(JobFilter())
    assert (exact.jobs, exact.is_cut) == (4, False)
    await submit(replica, "ro")
    cut = await selections.count(JobFilter())
    assert (cut.jobs, cut.is_cut) == (4, True)
    searched = await selections.count(RARE)
    assert (searched.jobs, searched.is_cut) == (2, True)
