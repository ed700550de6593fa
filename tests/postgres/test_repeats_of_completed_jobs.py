"""A submit that repeats a completed job finds it, whatever the two do at the same time. ADR-0057

A completed job moves to another table. An insert that meets the move waits for it and then finds no conflict,
with a snapshot in which the job is not completed yet.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_server.base import tuning
from pulse_server.base.errors import AlreadyExists, PulseError
from pulse_server.base.ids import first_id_at
from pulse_server.jobs.inserts import batch
from pulse_server.jobs.new_jobs import NewJob, Submitted, UniformJobs
from pulse_server.jobs.reads import array_text, compact_claim_columns
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Claim, JobStatus
from pulse_server.jobs.store import _SQL
from tests.fakes.store import LEASE, Store, a_job
from tests.postgres.sessions import Connection, blocked

Insert = Callable[[Store, NewJob], Awaitable[Sequence[Submitted | PulseError]]]


async def insert(store: Store, *jobs: NewJob) -> Sequence[Submitted | PulseError]:
    return await store.repo.insert_jobs(jobs)


async def hand_over(store: Store, *jobs: NewJob) -> Sequence[Submitted | PulseError]:
    return await store.repo.hand_over_jobs(jobs, [Taker("B", True)] * len(jobs), LEASE)


async def in_columns(store: Store, *jobs: NewJob) -> Sequence[Submitted | PulseError]:
    ids = b"".join(uuid.UUID(job.id).bytes for job in jobs)
    return await store.repo.insert_jobs(UniformJobs(jobs[0], ids, [job.payload for job in jobs]))


async def hand_over_each(store: Store, *jobs: NewJob) -> Sequence[Submitted | PulseError]:
    return [answer for job in jobs for answer in await hand_over(store, job)]


async def hand_over_beside(store: Store, job: NewJob) -> Sequence[Submitted | PulseError]:
    return (await hand_over(store, job, a_job("another")))[:1]


HANDOVERS = (hand_over, hand_over_each, hand_over_beside)


def same_id(job: NewJob) -> NewJob:
    return job


def same_key(job: NewJob) -> NewJob:
    return job._replace(id=a_job().id)


either_way = pytest.mark.parametrize("submit", [insert, hand_over, hand_over_each])
either_repeat = pytest.mark.parametrize("repeat", [same_id, same_key])


@pytest.fixture(autouse=True)
def _patience_of_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.database.connections.LOCK_PATIENCE", 0.8 * tuning.STATEMENT_TIMEOUT)


async def complete(session: Connection, claim: Claim) -> None:
    ids, *rest = compact_claim_columns([claim])
    assert await session.fetch(_SQL["complete_jobs"], array_text(ids), *rest, None)


async def completed(store: Store, job: NewJob) -> Claim:
    """Run the job to its end."""
    await store.submit(job)
    (claim,) = await store.claim("A", topics=[job.topic])
    assert set(await store.repo.complete_jobs([claim])) == {claim}
    return claim


async def stored(connection: Connection, job: NewJob) -> list[str]:
    """Where the job is, by id or key, in each table."""
    rows = await connection.fetch(
        "SELECT 'live' AS name FROM pulse.jobs "
        "WHERE id = $1 OR (topic = $2 AND idempotency_key = $3) "
        "UNION ALL SELECT 'completed' FROM pulse.completed_jobs "
        "WHERE id = $1 OR (topic = $2 AND idempotency_key = $3)",
        job.id,
        job.topic,
        job.idempotency_key,
    )
    return [row["name"] for row in rows]


@either_way
@either_repeat
async def test_repeat_that_waited_for_the_completion_finds_the_completed_job(
    store: Store, connection: Connection, rival: Connection, submit: Insert, repeat: Any
) -> None:
    job, other = a_job(idempotency_key="k"), a_job(topic="sms")
    await store.submit(job)
    (claim,) = await store.claim("A")
    await complete(rival, claim)

    submitting = await blocked(connection, submit(store, other, repeat(job)))  # type: ignore[call-arg]
    await rival.execute("COMMIT")
    neighbor, answer = await submitting

    assert answer == Submitted(job.id, True)
    assert neighbor == Submitted(other.id, False, is_taken=submit in HANDOVERS)
    assert await stored(connection, job) == ["completed"]


async def test_bulk_that_waited_for_the_completion_of_its_job_finds_it(
    store: Store, connection: Connection, rival: Connection
) -> None:
    job, other = a_job(), a_job()
    await store.submit(job)
    (claim,) = await store.claim("A")
    await complete(rival, claim)

    submitting = await blocked(connection, in_columns(store, other, job))
    await rival.execute("COMMIT")
    assert await submitting == [Submitted(other.id, False), Submitted(job.id, True)]
    assert await stored(connection, job) == ["completed"]


@either_way
@either_repeat
async def test_repeat_of_a_job_that_was_submitted_and_completed_while_it_waited_finds_it(
    store: Store, connection: Connection, rival: Connection, submit: Insert, repeat: Any
) -> None:
    """The snapshot of the repeat has the job in neither table."""
    first, job = a_job(topic="sms"), a_job(idempotency_key="k")
    await rival.fetch(_SQL["insert_jobs"], *batch([first]))

    submitting = await blocked(connection, submit(store, first, repeat(job)))  # type: ignore[call-arg]
    await completed(store, job)
    await rival.execute("COMMIT")
    _, answer = await submitting

    assert answer == Submitted(job.id, True)
    assert await stored(connection, job) == ["completed"]


@pytest.mark.parametrize("submit", [insert, hand_over, hand_over_beside])
@either_repeat
async def test_repeat_after_the_completion_finds_it(
    store: Store, connection: Connection, submit: Insert, repeat: Any
) -> None:
    job = a_job(idempotency_key="k")
    await completed(store, job)

    assert await submit(store, repeat(job)) == [Submitted(job.id, True)]
    assert await stored(connection, job) == ["completed"]
    assert await store.claim("B") == []


async def test_completion_that_is_rolled_back_leaves_the_repeat_a_duplicate_of_the_running_job(
    store: Store, connection: Connection, rival: Connection
) -> None:
    job = a_job()
    await store.submit(job)
    (claim,) = await store.claim("A")
    await complete(rival, claim)

    submitting = await blocked(connection, store.repo.insert_jobs([job]))
    await rival.execute("ROLLBACK")

    assert await submitting == [Submitted(job.id, True)]
    assert await stored(connection, job) == ["live"]


async def test_repeat_with_another_payload_is_refused(store: Store) -> None:
    job = a_job(idempotency_key="k")
    await completed(store, job)

    by_id, by_key = await store.repo.insert_jobs(
        [job._replace(payload=b"other"), same_key(job)._replace(payload=b"other")]
    )

    assert isinstance(by_id, AlreadyExists)
    assert isinstance(by_key, AlreadyExists)


async def test_repeats_among_new_jobs_are_answered_each_for_itself(
    store: Store, connection: Connection
) -> None:
    done, keyed, new = a_job(), a_job(idempotency_key="k"), a_job()
    await completed(store, done)
    await completed(store, keyed)

    answers = await store.repo.insert_jobs([done, new, same_key(keyed), new, done])

    assert answers == [
        *(Submitted(done.id, True), Submitted(new.id, False), Submitted(keyed.id, True)),
        *(Submitted(new.id, True), Submitted(done.id, True)),
    ]
    assert await store.claim("A", 5) == [Claim(new.id, "A", 1, 1)]


def v7(moment: datetime) -> str:
    """An id that is stamped with the moment, and with no other."""
    return first_id_at(moment)[:-12] + uuid.uuid4().hex[:12]


NOW = datetime.now(UTC)
IDS = {
    "version 4": lambda: str(uuid.uuid4()),
    "stamped in 1970": lambda: v7(datetime(1970, 1, 1, tzinfo=UTC)),
    "stamped last week": lambda: v7(NOW - timedelta(days=7)),
    "stamped now": lambda: v7(NOW),
    "stamped 20 minutes ahead": lambda: v7(NOW + timedelta(minutes=20)),
    "stamped an hour ahead": lambda: v7(NOW + timedelta(hours=1)),
    "stamped three days ahead": lambda: v7(NOW + timedelta(days=3)),
    "stamped in the year 4000": lambda: v7(datetime(4000, 1, 1, tzinfo=UTC)),
    "stamped past the end of time": lambda: "ffffffff-ffff-7fff-8fff-" + uuid.uuid4().hex[:12],
}


@pytest.mark.parametrize("submit", [insert, hand_over, hand_over_beside, in_columns])
@pytest.mark.parametrize("made", IDS)
async def test_repeat_finds_its_job_whatever_is_stamped_into_the_id(
    store: Store, connection: Connection, submit: Insert, made: str
) -> None:
    job = a_job(id=IDS[made]())
    claim = await completed(store, job)

    assert await submit(store, job) == [Submitted(job.id, True)]
    assert len(await stored(connection, job)) == 1
    found = await store.repo.get_job(job.id)
    assert found is not None
    assert (found.status, found.finished_by) == (JobStatus.COMPLETED, "A")
    assert await store.repo.delete_jobs([claim.job_id]) == {job.id: JobStatus.COMPLETED}
    assert await submit(store, job) == [Submitted(job.id, False, is_taken=submit in HANDOVERS)]


async def test_job_whose_id_is_stamped_ahead_of_its_end_stays_where_a_repeat_conflicts_with_it(
    store: Store, connection: Connection
) -> None:
    """A repeat in three days would look for it among what has finished since an hour before its stamp."""
    ahead, unstamped, usual = (
        a_job(id=IDS["stamped three days ahead"]()),
        a_job(id=str(uuid.uuid4())),
        a_job(),
    )
    await store.submit(ahead, unstamped, usual)
    claims = await store.claim("A", 3)

    counted = await store.repo.complete_jobs(claims)

    assert set(counted) == set(claims)
    places = [await stored(connection, job) for job in (ahead, unstamped, usual)]
    assert places == [["live"], ["completed"], ["completed"]]


@pytest.mark.parametrize(
    "finished", [timedelta(days=40), timedelta(days=1), timedelta(hours=-20)], ids=lambda ago: f"{ago} ago"
)
async def test_key_and_id_are_held_however_long_the_job_has_been_completed(
    store: Store, finished: timedelta
) -> None:
    """Also after the clock of the database was set back: the job finished in the future."""
    job = a_job(idempotency_key="k", id=v7(NOW - max(finished, timedelta())))
    await completed(store, job)
    await store.time.age(job.id, submitted=finished, finished=finished)

    assert await store.repo.insert_jobs([job]) == [Submitted(job.id, True)]
    assert await store.repo.insert_jobs([same_key(job)]) == [Submitted(job.id, True)]


async def test_key_of_a_deleted_job_is_free(store: Store) -> None:
    job = a_job(idempotency_key="k")
    await completed(store, job)
    await store.repo.delete_jobs([job.id])

    again = same_key(job)
    assert await store.repo.insert_jobs([again]) == [Submitted(again.id, False)]


async def test_repeat_whose_job_is_deleted_while_it_waits_is_stored_anew(
    store: Store, connection: Connection, rival: Connection
) -> None:
    job = a_job()
    await store.submit(job)
    (claim,) = await store.claim("A")
    await complete(rival, claim)
    await rival.fetch(_SQL["delete_jobs"], [job.id], ["COMPLETED"])

    submitting = await blocked(connection, store.repo.insert_jobs([job]))
    await rival.execute("COMMIT")

    assert await submitting == [Submitted(job.id, False)]
    assert await stored(connection, job) == ["live"]
