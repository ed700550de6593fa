"""enqueue_many sends columns, and rows to a server that does not know columns."""

from __future__ import annotations

import functools
import math
import pickle
import re
from dataclasses import dataclass
from typing import Any

import pytest

import pulse
from tests.rows import each_row
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


REFUSED: list[tuple[Any, str]] = [
    ({"page": "x"}, "The handler of 'render' could not read this job. The arguments cannot be decoded: Exp"),
    ({"page": math.nan}, "The arguments have NaN or infinity at `$.page`"),
    ({"page": object()}, "The arguments of type dict cannot be written as JSON"),
]


@pytest.mark.parametrize(("item", "sentence"), REFUSED)
async def test_refusal_before_sending_has_the_number_of_the_item(
    fake: FakePulsed, p: pulse.Pulse, item: Any, sentence: str
) -> None:
    """Counted as by PartialFailure: from 0. That of a single enqueue has none."""

    @p.job("render")
    async def render(page: int) -> None: ...

    numbered = re.escape(f"Item number 2: {sentence}")
    for items in ([{"page": 1}, {"page": 2}, item], [{"page": 1}, {"page": 2}, pulse.JobItem(item)]):
        with pytest.raises(pulse.InvalidArgument, match=f"^{numbered}"):
            await render.enqueue_many(items)
        with pytest.raises(pulse.InvalidArgument, match=f"^{numbered}"):
            await p.enqueue_many("render", items)
    with pytest.raises(pulse.InvalidArgument, match=f"^{re.escape(sentence)}"):
        await render.enqueue(**item)
    with pytest.raises(pulse.InvalidArgument, match=f"^{re.escape(sentence)}"):
        await p.enqueue("render", item)
    assert not fake.stored


@pytest.mark.parametrize("items", [{"page": 1}, "page", b"page", 5])
async def test_one_item_in_place_of_a_list_is_refused(fake: FakePulsed, p: pulse.Pulse, items: Any) -> None:
    """Its keys, characters or bytes would be stored as jobs."""

    @p.job("anything")
    async def anything(value: object) -> None: ...

    sentence = re.escape(f"items has to be a list, one item for each job, but {items!r} was given.")
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        await p.enqueue_many("t", items)
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        await anything.enqueue_many(items)
    assert not fake.stored


@each_row("items", [{"page": 1}, "page", b"page", 5])
def test_one_item_in_place_of_a_list_is_refused_by_a_blocking_client(fake: FakePulsed, items: Any) -> None:
    sentence = re.escape(f"items has to be a list, one item for each job, but {items!r} was given.")
    with pulse.SyncPulse(fake.address) as p, pytest.raises(pulse.InvalidArgument, match=sentence):
        p.enqueue_many("t", items)
    assert not fake.stored


@each_row("has_middleware", [False, True])
@each_row("item, sentence", REFUSED)
def test_blocking_client_names_the_number_of_the_item_too(
    fake: FakePulsed, item: Any, sentence: str, has_middleware: bool
) -> None:
    with pulse.SyncPulse(fake.address) as p:
        if has_middleware:
            p.enqueue_middleware(lambda enqueue, call_next: call_next())

        @p.job("render")
        def render(page: int) -> None: ...

        for verb in (render.enqueue_many, functools.partial(p.enqueue_many, "render")):
            with pytest.raises(pulse.InvalidArgument, match=f"^{re.escape(f'Item number 1: {sentence}')}"):
                verb([{"page": 1}, item])
        with pytest.raises(pulse.InvalidArgument, match=f"^{re.escape(sentence)}"):
            p.enqueue("render", item)
    assert not fake.stored


async def test_error_of_a_validator_is_the_cause_of_the_refusal(p: pulse.Pulse) -> None:
    @dataclass
    class Page:
        number: int

        def __post_init__(self) -> None:
            raise LookupError("no such page")

    @p.job("render")
    async def render(page: Page) -> None: ...

    with pytest.raises(pulse.InvalidArgument, match=r"Item number 0: .* LookupError: no such page") as caught:
        await render.enqueue_many([{"number": 1}])
    assert isinstance(caught.value.__cause__, LookupError)


def test_handle_is_an_immutable_value() -> None:
    handle = pulse.JobHandle("id", "topic")
    assert handle == pulse.JobHandle(id="id", topic="topic", duplicate=False)
    assert {handle: 1}[pickle.loads(pickle.dumps(handle))] == 1  # made in the same line
    shown = "JobHandle(id='id', topic='topic', duplicate=False, replaced=False, submitted_at=None)"
    assert repr(handle) == shown
    with pytest.raises(AttributeError):
        handle.id = "other"  # type: ignore[misc]
