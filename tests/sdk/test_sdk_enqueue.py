from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

import pulse
from pulse import tuning
from tests.rows import each_row
from tests.sdk.fake_pulsed import FakePulsed

UNKNOWN = "00000000-0000-7000-8000-000000000000"


async def test_enqueue_stores_the_job_as_it_was_described(fake: FakePulsed, p: pulse.Pulse) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    handle = await p.enqueue(
        "mail", {"to": "a@b.c"}, priority=7, run_at=at, max_attempts=9, key="k", metadata={"a": "b"}
    )
    job = fake.stored[handle.id]
    assert (job.topic, job.payload, job.priority) == ("mail", b'{"to":"a@b.c"}', 7)
    assert (job.max_attempts, job.idempotency_key, dict(job.metadata)) == (9, "k", {"a": "b"})
    assert job.run_at.ToDatetime(tzinfo=UTC) == at
    assert (handle.topic, handle.duplicate) == ("mail", False)


async def test_calls_made_while_two_are_in_flight_share_the_next(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.submit_may_answer.clear()

    def wave(count: int) -> list[asyncio.Task[pulse.JobHandle]]:
        return [asyncio.create_task(p.enqueue("t", number)) for number in range(count)]

    calls = wave(1)
    await fake.until_async(lambda: len(fake.submit_sizes) == 1)
    calls += wave(10)
    await fake.until_async(lambda: len(fake.submit_sizes) == 2)
    calls += wave(10)
    await asyncio.sleep(0)
    calls += wave(10)
    await asyncio.sleep(0)
    fake.submit_may_answer.set()
    handles = await asyncio.gather(*calls)
    assert fake.submit_sizes == [1, 10, 20]
    assert len({handle.id for handle in handles}) == 31


async def test_refusal_reaches_only_its_caller(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.refused_topics["bad topic"] = (grpc.StatusCode.INVALID_ARGUMENT, "The topic has a space.")
    good, bad = await asyncio.gather(p.enqueue("good"), p.enqueue("bad topic"), return_exceptions=True)
    assert fake.submit_sizes == [2]
    assert isinstance(good, pulse.JobHandle)
    assert isinstance(bad, pulse.InvalidArgument)
    assert bad.message == "The topic has a space."


async def test_lost_answer_is_asked_for_again_and_is_no_duplicate(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.lose_answers = 2
    handle = await p.enqueue("t")
    assert fake.submit_sizes == [1, 1, 1]
    assert list(fake.stored) == [handle.id]
    assert not handle.duplicate


async def test_submit_that_finds_no_room_is_repeated(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.submits_without_room = 2
    handle = await p.enqueue("t")
    assert list(fake.stored) == [handle.id]

    fake.submits_without_room = 2
    handles = await p.enqueue_many("t", [1, 2])
    assert [*fake.stored] == [handle.id, *(one.id for one in handles)]


async def test_server_without_room_is_named_once_the_time_is_up(fake: FakePulsed, p: pulse.Pulse) -> None:
    await p.enqueue("t")  # the connection stands
    fake.submits_without_room = 1_000_000
    for submit in (
        p.enqueue("t", timeout=timedelta(seconds=1)),
        p.enqueue_many("t", [1, 2], timeout=timedelta(seconds=1)),
    ):
        with pytest.raises(pulse.PulseError, match="There is no room now"):
            await submit
    assert len(fake.stored) == 1


async def test_used_key_answers_with_the_first_job(p: pulse.Pulse) -> None:
    first = await p.enqueue("t", key="once")
    second = await p.enqueue("t", key="once")
    assert (second.id, second.duplicate) == (first.id, True)


async def test_job_id_used_before_is_a_duplicate(p: pulse.Pulse) -> None:
    job_id = "01890000-0000-7000-8000-000000000001"
    assert not (await p.enqueue("t", job_id=job_id)).duplicate
    assert (await p.enqueue("t", job_id=job_id)).duplicate


async def test_each_caller_has_its_own_deadline(fake: FakePulsed, p: pulse.Pulse) -> None:
    await p.enqueue("t")  # the connection stands: otherwise no server may answer, instead of a late one
    fake.submit_may_answer.clear()
    patient = asyncio.create_task(p.enqueue("t"))
    with pytest.raises(pulse.DeadlineExceeded, match="may or may not"):
        await p.enqueue("t", timeout=timedelta(milliseconds=50))
    fake.submit_may_answer.set()
    assert (await patient).id in fake.stored


async def test_callers_that_wait_together_time_out_one_by_one(fake: FakePulsed, p: pulse.Pulse) -> None:
    await p.enqueue("t")  # the connection stands
    fake.submit_may_answer.clear()
    ended: list[float] = []

    async def enqueue(seconds: float) -> None:
        with pytest.raises(pulse.DeadlineExceeded):
            await p.enqueue("t", timeout=timedelta(seconds=seconds))
        ended.append(seconds)

    await asyncio.gather(enqueue(0.15), enqueue(0.05), enqueue(0.1))
    fake.submit_may_answer.set()
    assert ended == [0.05, 0.1, 0.15]


async def test_absent_server_is_named_with_what_to_do(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.stop()
    with pytest.raises(pulse.Unavailable, match=rf"No pulsed answers at {fake.address}: is it running\?"):
        await p.enqueue("t", timeout=timedelta(milliseconds=300))
    with pytest.raises(pulse.Unavailable, match="is it running"):
        await p.get_job(UNKNOWN, timeout=timedelta(milliseconds=300))
    with pytest.raises(pulse.Unavailable, match="is it running"):
        await p.enqueue_many("t", [1, 2], timeout=timedelta(milliseconds=300))


async def test_enqueue_rides_out_a_restart(fake: FakePulsed, p: pulse.Pulse) -> None:
    await p.enqueue("t")
    fake.stop()
    waiting = asyncio.create_task(p.enqueue("t"))
    await asyncio.sleep(0)
    fake.start()
    assert (await waiting).id in fake.stored


async def test_many_are_sent_in_batches_by_count_and_by_size(fake: FakePulsed, p: pulse.Pulse) -> None:
    handles = await p.enqueue_many("t", range(2500), priority=3)
    assert sorted(fake.submit_sizes) == [500, 1000, 1000]
    assert [handle.id for handle in handles] == sorted(fake.stored)
    assert all(job.priority == 3 for job in fake.stored.values())
    fake.submit_sizes.clear()
    large = bytes(tuning.ENQUEUE_BATCH_BYTES // 3)
    await p.enqueue_many("t", [large] * 4)
    assert sorted(fake.submit_sizes) == [2, 2]


async def test_metadata_of_concurrent_callers_counts_for_the_batch(fake: FakePulsed, p: pulse.Pulse) -> None:
    await asyncio.gather(*(p.enqueue("t", metadata={"a": "b" * 16_000}) for _ in range(200)))
    assert max(fake.submit_sizes) <= tuning.ENQUEUE_BATCH_BYTES // 16_000


async def test_item_that_is_too_large_keeps_all_from_being_sent(fake: FakePulsed, p: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match="Item number 1: payload has 1048577 bytes"):
        await p.enqueue_many("t", [b"fits", bytes(tuning.PAYLOAD_BYTES + 1)])
    assert not fake.submit_sizes


async def test_partial_failure_lists_the_refused_jobs(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.refused_topics["bad"] = (grpc.StatusCode.RESOURCE_EXHAUSTED, "The payload is too large.")
    with pytest.raises(
        pulse.PartialFailure, match=r"3 of 3 jobs .* number 0: The payload is too large"
    ) as caught:
        await p.enqueue_many("bad", [1, 2, 3])
    assert isinstance(caught.value.errors[2], pulse.ResourceExhausted)
    assert caught.value.handles == [None, None, None]


@each_row(
    "options, sentence",
    [
        ({"run_at": datetime(2030, 1, 1)}, "no time zone"),
        ({"run_at": datetime.now(UTC), "delay": timedelta(1)}, "not both"),
        ({"priority": 2**31}, "priority=2147483648 is outside"),
        ({"priority": "high"}, "priority has to be int"),
        ({"lane": ""}, 'lane="" is not a lane'),
        ({"key": ""}, 'key="" is not a key'),
        ({"metadata": {"a": 1}}, "metadata has to map strings to strings"),
        ({"key": 5}, "key has to be"),
        ({"args": object()}, "cannot be written as JSON"),
        ({"args": bytes(1024 * 1024 + 1)}, "payload has 1048577 bytes; 1048576 are allowed at the most"),
        ({"metadata": {"a": "b" * 4 * 1024 * 1024}}, "The job has 41943.. bytes with its options"),
        (
            {"args": {"order": Mock(_meta=1, pk=7)}},
            r"Mock is a model of Django; give its key, such as mock\.pk",
        ),
        ({"timeout": timedelta(0)}, "timeout has to be positive"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_it_is(
    fake: FakePulsed, p: pulse.Pulse, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        await p.enqueue("t", **options)
    assert not fake.submit_sizes


async def test_errors_of_the_server_are_ours_with_its_sentence(p: pulse.Pulse) -> None:
    with pytest.raises(pulse.NotFound) as missing:
        await p.get_job(UNKNOWN)
    assert (missing.value.message, missing.value.code) == (f"There is no job {UNKNOWN}.", "NOT_FOUND")
    assert missing.value.__cause__ is None
    with pytest.raises(pulse.InvalidTransition, match="cannot be canceled"):
        await p.cancel(UNKNOWN)
    with pytest.raises(pulse.PulseError, match="does not know this call"):
        await p.retry(UNKNOWN)


async def test_job_info_has_what_the_server_knows(p: pulse.Pulse) -> None:
    handle = await p.enqueue("t", {"a": [1]}, metadata={"m": "n"})
    job = await p.get_job(handle.id)
    assert job.status is pulse.JobStatus.PENDING
    assert job.status == "PENDING"
    assert (job.args, job.payload, job.metadata) == ({"a": [1]}, b'{"a":[1]}', {"m": "n"})
    assert job.submitted_at is not None
    assert job.submitted_at.utcoffset() == timedelta(0)
    assert (job.finished_at, job.last_error, job.history) == (None, None, ())


async def test_iteration_follows_the_pages(p: pulse.Pulse) -> None:
    handles = await p.enqueue_many("t", range(5))
    page = await p.list_jobs(limit=2)
    assert (len(page), page.next_cursor) == (2, "2")
    seen = [job.id async for job in p.iter_jobs(page_size=2)]
    assert seen == sorted((handle.id for handle in handles), reverse=True)


async def test_credentials_go_along_with_every_call(fake: FakePulsed) -> None:
    async with pulse.Pulse(fake.address, user="ann", password="s:e") as p:
        await p.enqueue("t")
    assert fake.metadata[-1]["authorization"] == "Basic " + base64.b64encode(b"ann:s:e").decode()


async def test_closed_client_raises_and_can_be_entered_again(p: pulse.Pulse) -> None:
    await p.enqueue("t")
    await p.close()
    with pytest.raises(pulse.ClientClosed, match="closed"):
        await p.enqueue("t")
    async with p:
        await p.enqueue("t")


def test_one_client_serves_one_event_loop_after_another(fake: FakePulsed) -> None:
    p = pulse.Pulse(fake.address)
    asyncio.run(_enqueue_one(p))
    asyncio.run(_enqueue_one(p))
    assert len(fake.stored) == 2


async def test_client_in_use_by_a_living_loop_is_refused_elsewhere(p: pulse.Pulse) -> None:
    await p.enqueue("t")
    with pytest.raises(pulse.ClientClosed, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(_enqueue_one(p)))


async def _enqueue_one(p: pulse.Pulse) -> None:
    await p.enqueue("t")


async def test_job_enqueues_itself_with_options(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.job("mail")
    async def send(to: str, copies: int = 1) -> None: ...

    handle = await send.enqueue("x", copies=2)
    assert (handle.topic, fake.stored[handle.id].payload) == ("mail", b'{"to":"x","copies":2}')
    urgent = send.options(priority=9).options(key="k", delay=timedelta(minutes=5))
    job = fake.stored[(await urgent.enqueue("y")).id]
    assert (job.priority, job.idempotency_key, job.delay.seconds) == (9, "k", 300)
    handles = await send.options(priority=1).enqueue_many([{"to": "a"}, {"to": "b"}])
    assert [fake.stored[handle.id].payload for handle in handles] == [b'{"to":"a"}', b'{"to":"b"}']
