"""enqueue_many sends columns, and rows to a server that does not know columns."""

from __future__ import annotations

import pickle

import pytest

import pulse
from tests.sdk.fake_pulsed import FakePulsed


async def test_jobs_of_a_bulk_have_their_own_payloads_and_the_shared_options(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    handles = await p.enqueue_many("t", [1, b"", b"\x00raw", "four"], priority=3, metadata={"trace": "ü"})
    stored = [fake.stored[handle.id] for handle in handles]
    assert [job.payload for job in stored] == [b"1", b"", b"\x00raw", b'"four"']
    assert {(job.topic, job.priority, job.metadata["trace"]) for job in stored} == {("t", 3, "ü")}
    assert fake.submit_sizes == [4]


async def test_server_without_columns_gets_rows_and_each_job_once(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.ignores_columns = True
    handles = await p.enqueue_many("t", range(2500))
    assert [handle.id for handle in handles] == sorted(fake.stored)
    assert not any(handle.duplicate for handle in handles)
    assert sorted(size for size in fake.submit_sizes if size) == [500, 1000, 1000]


async def test_columns_are_not_tried_again_at_once(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.ignores_columns = True
    await p.enqueue_many("t", [1, 2])
    assert fake.submit_sizes == [0, 2]
    await p.enqueue_many("t", [3, 4, 5])
    assert fake.submit_sizes == [0, 2, 3]


async def test_lost_answer_to_columns_stores_nothing_twice(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.lose_answers = 1
    handles = await p.enqueue_many("t", [1, 2, 3])
    assert fake.submit_sizes == [3, 3]
    assert [handle.id for handle in handles] == sorted(fake.stored)
    assert not any(handle.duplicate for handle in handles)


async def test_empty_bulk_sends_nothing(fake: FakePulsed, p: pulse.Pulse) -> None:
    assert await p.enqueue_many("t", []) == []
    assert fake.submit_sizes == []


def test_handle_is_an_immutable_value() -> None:
    handle = pulse.JobHandle("id", "topic")
    assert handle == pulse.JobHandle(id="id", topic="topic", duplicate=False)
    assert {handle: 1}[pickle.loads(pickle.dumps(handle))] == 1  # made in the same line
    assert repr(handle) == "JobHandle(id='id', topic='topic', duplicate=False, replaced=False)"
    with pytest.raises(AttributeError):
        handle.id = "other"  # type: ignore[misc]
