"""Jobs by filter: listed, paged, counted and found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import product
from uuid import uuid4

import pytest

from pulse_server.base.ids import PageKey
from pulse_server.jobs.rules import LIVE, REDRIVABLE, TERMINAL, Job, JobFilter, JobStatus
from tests.fakes.store import Store, a_job, failure

HOUR = timedelta(hours=1)
SCHEDULE = "0190f3a0-0000-7000-8000-0000000000aa"
STATUSES: list[frozenset[JobStatus] | None] = [
    None,
    *(frozenset({status}) for status in JobStatus),
    LIVE,
    TERMINAL,
    REDRIVABLE,
    frozenset({JobStatus.PENDING, JobStatus.COMPLETED}),
    frozenset({JobStatus.RUNNING, JobStatus.DEAD_LETTERED}),
    frozenset(JobStatus),
]
TOPICS = [None, frozenset({"email"}), frozenset({"unused"}), frozenset({"email", "sms"})]


async def populate(store: Store) -> list[Job]:
    """Jobs of every status, of two topics, old and young, with and without a schedule. Newest first."""
    ids = []
    in_turn = reversed(JobStatus)  # the PENDING ones last: the others have to be claimed
    for number, (status, topic, is_old) in enumerate(product(in_turn, ("email", "sms"), (True, False))):
        job_id = await store.reach(status, topic=topic, schedule_id=SCHEDULE if number % 3 == 0 else None)
        finished = HOUR if status in TERMINAL else None
        # Two of each hour share the moment: the id decides between them.
        await store.time.age(job_id, submitted=(2 if is_old else 1) * HOUR, finished=finished)
        ids.append(job_id)
    jobs = [await store.job(job_id) for job_id in ids]
    return sorted(jobs, key=lambda job: (job.submitted_at, job.id), reverse=True)


def combinations(border: datetime) -> Iterator[JobFilter]:
    for statuses, topics, since, before, schedule, error in product(
        STATUSES, TOPICS, (None, border), (None, border), (None, SCHEDULE), (None, "BOOM")
    ):
        yield JobFilter(topics, statuses, since, before, schedule, error)


def matches(job: Job, wanted: JobFilter) -> bool:
    return (
        (wanted.topics is None or job.topic in wanted.topics)
        and (wanted.statuses is None or job.status in wanted.statuses)
        and (wanted.submitted_since is None or job.submitted_at >= wanted.submitted_since)
        and (wanted.submitted_before is None or job.submitted_at < wanted.submitted_before)
        and (wanted.schedule_id is None or job.schedule_id == wanted.schedule_id)
        and (wanted.error_contains is None or "boom" in (job.last_error or ""))
    )


async def test_every_combination_of_filters_lists_and_counts_what_matches(store: Store) -> None:
    jobs = await populate(store)
    border = jobs[len(jobs) // 2].submitted_at

    for wanted in combinations(border):
        expected = [job.id for job in jobs if matches(job, wanted)]
        listed = await store.repo.list_jobs(wanted, limit=100)
        keys = await store.repo.matching_jobs(wanted, limit=100)

        assert [job.id for job in listed] == expected, wanted
        assert [key.id for key in keys] == expected, wanted
        assert await store.repo.count_matching_jobs(wanted) == len(expected), wanted


@pytest.mark.parametrize(
    "statuses", STATUSES, ids=lambda some: "any" if some is None else "+".join(sorted(some))
)
async def test_pages_and_offsets_together_are_the_whole_list(
    store: Store, statuses: frozenset[JobStatus] | None
) -> None:
    wanted = JobFilter(statuses=statuses)
    expected = [job.id for job in await populate(store) if matches(job, wanted)]
    by_key: list[str] = []
    after = None
    while keys := await store.repo.matching_jobs(wanted, limit=5, after=after):
        by_key += [key.id for key in keys]
        after = keys[-1]
    by_offset = []
    for offset in range(0, len(expected) + 5, 5):
        by_offset += [job.id for job in await store.repo.list_jobs(wanted, limit=5, offset=offset)]

    assert by_key == by_offset == expected


async def test_pages_meet_each_job_once_while_jobs_move_from_one_arm_to_the_other(store: Store) -> None:
    ids = await store.submit(*[a_job() for _ in range(12)])
    seen: list[str] = []
    after = None
    while page := await store.repo.list_jobs(JobFilter(), limit=3, after=after):
        seen += [job.id for job in page]
        after = PageKey(page[-1].submitted_at, page[-1].id)
        claims = await store.claim(count=2)
        await store.repo.complete_jobs(claims)

    assert seen == ids[::-1]


async def test_text_in_errors_is_text_and_no_pattern(store: Store) -> None:
    claim = await store.start()
    await store.repo.fail_jobs([failure(claim, "100% of the disk_space is gone")])

    found = {
        text: await store.repo.count_matching_jobs(JobFilter(error_contains=text))
        for text in ("0% OF", "disk_space", "diskXspace", "1%disk", "%", "'", "\\")
    }

    assert found == {"0% OF": 1, "disk_space": 1, "diskXspace": 0, "1%disk": 0, "%": 1, "'": 0, "\\": 0}


async def test_job_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    ids = sorted(await store.submit(*[a_job(id=str(uuid4())) for _ in range(30)]))
    digits = {job_id.replace("-", ""): job_id for job_id in ids}

    for prefix in ("0", "f", ids[7][:1], ids[7].replace("-", "")[:9], ids[7].replace("-", "")):
        expected = [job_id for text, job_id in sorted(digits.items()) if text.startswith(prefix)]
        assert await store.repo.find_jobs(prefix, 10) == expected[:10], prefix


async def test_of_many_that_begin_alike_the_first_are_found(store: Store) -> None:
    ids = await store.submit(*[a_job() for _ in range(5)])

    assert await store.repo.find_jobs(ids[0].replace("-", "")[:4], 3) == sorted(ids)[:3]


async def test_metadata_that_is_asked_for_is_among_the_jobs(store: Store) -> None:
    both, one, odd, _none = await store.submit(
        a_job(metadata={"customer": "7", "plan": "gold"}),
        a_job(metadata={"customer": "7"}),
        a_job(metadata={"it's": '"quoted"'}),
        a_job(),
    )

    async def found(**metadata: str) -> list[str]:
        wanted = JobFilter(metadata=metadata)
        keys = [key.id for key in await store.repo.matching_jobs(wanted, limit=9)]
        assert await store.repo.count_matching_jobs(wanted) == len(keys)
        assert [job.id for job in await store.repo.list_jobs(wanted, limit=9)] == keys
        return keys

    assert await found(customer="7") == [one, both]
    assert await found(customer="7", plan="gold") == [both]
    assert await found(customer="70") == []
    assert await found(plan="7") == []
    assert await found(**{"it's": '"quoted"'}) == [odd]


async def test_dead_letters_are_found_by_their_group(store: Store) -> None:
    grouped: list[str] = []
    for topic, group in product(("email", "sms"), ("aa", "bb", "")):
        claim = await store.start(topic=topic)
        await store.repo.fail_jobs([failure(claim, discard=True, error_group=group)])
        grouped.append(claim.job_id)
    dead = frozenset({JobStatus.DEAD_LETTERED})

    async def found(group: str, topic: str | None = None) -> list[int]:
        wanted = JobFilter(frozenset({topic}) if topic else None, dead, error_group=group)
        assert await store.repo.count_matching_jobs(wanted) == len(
            await store.repo.list_jobs(wanted, limit=9)
        )
        return [grouped.index(key.id) for key in await store.repo.matching_jobs(wanted, limit=9)]

    assert await found("aa") == [3, 0]
    assert await found("bb", "sms") == [4]
    assert await found("") == [5, 2]
    assert await found("cc") == []


# --- acting on many


async def test_cancel_takes_only_those_in_the_statuses_it_names(store: Store) -> None:
    jobs = {status: await store.reach(status, topic=status.lower()) for status in JobStatus}

    canceled = await store.repo.cancel_jobs(list(jobs.values()), "", {JobStatus.PENDING, JobStatus.COMPLETED})

    assert [entry.job.id for entry in canceled] == [jobs[JobStatus.PENDING]]
    del jobs[JobStatus.PENDING]
    assert {status: await store.status(job_id) for status, job_id in jobs.items()} == {s: s for s in jobs}


async def test_retry_takes_only_those_in_the_statuses_it_names(store: Store) -> None:
    jobs = {status: await store.reach(status, topic=status.lower()) for status in JobStatus}

    retried = await store.repo.retry_jobs(list(jobs.values()), 1, {JobStatus.CANCELED, JobStatus.RUNNING})

    assert [job.id for job in retried] == [jobs[JobStatus.CANCELED]]
    del jobs[JobStatus.CANCELED]
    assert {status: await store.status(job_id) for status, job_id in jobs.items()} == {s: s for s in jobs}


async def test_one_is_answered_in_full_and_several_without_what_is_heavy(store: Store) -> None:
    ids = [await store.reach(JobStatus.RUNNING, payload=b"heavy", topic=f"t{n}") for n in range(3)]

    (one,) = await store.repo.cancel_jobs(ids[:1], "stop")
    others = await store.repo.cancel_jobs(ids[1:], "stop")
    (again,) = await store.repo.retry_jobs(ids[:1], 1)
    rest = await store.repo.retry_jobs(ids[1:], 1)

    for job in (one.job, again):
        assert (job.payload, len(job.history)) == (b"heavy", 1)
    for job in (*(entry.job for entry in others), *rest):
        assert (job.payload, job.history, job.last_error) == (b"", (), "stop")
    assert {entry.ended_claim.job_id for entry in others if entry.ended_claim} == set(ids[1:])


async def test_list_ends_at_the_last_job_that_may_be_read(store: Store) -> None:
    jobs = await populate(store)
    for wanted in (JobFilter(), JobFilter(has_error=True), JobFilter(statuses=LIVE)):
        found = await store.repo.matching_jobs(wanted, limit=100)
        (end,) = await store.repo.matching_jobs(wanted, limit=1, offset=4)
        assert end == found[4]
        assert await store.repo.matching_jobs(wanted, limit=100, until=end) == found[:5]
        assert len(await store.repo.list_jobs(wanted, limit=100, until=end)) == 5
        assert await store.repo.count_matching_jobs(wanted, until=end) == 5
        assert 2 <= await store.repo.count_matching_jobs(wanted, most=2) <= len(found)
    with_error = {job.id for job in jobs if job.last_error is not None}
    found = await store.repo.matching_jobs(JobFilter(has_error=True), limit=100)
    assert {key.id for key in found} == with_error
