"""`pulse.Unique`: which combinations make sense, how its key is made, and what goes over the wire."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

import pulse
from tests.rows import each_row
from tests.sdk.fake_pulsed import FakePulsed

MINUTE = timedelta(minutes=1)


def unique_of(fake: FakePulsed, handle: pulse.JobHandle) -> tuple[str, str, str] | None:
    job = fake.stored[handle.id]
    return (job.unique.key, job.unique.scope, job.unique.on_conflict) if job.HasField("unique") else None


@each_row(
    "given, sentence",
    [
        ({}, "Give Unique a key, such as 'shop-7', or by"),
        ({"key": "a", "by": "b"}, "one of both"),
        ({"key": ""}, "a text that is not empty"),
        ({"key": 7}, "a text that is not empty, not 7"),
        ({"key": "a" * 256}, "has 256 characters; 255 are allowed"),
        ({"key": "a\ud800"}, "its character 1 is a lone surrogate"),
        ({"by": []}, "by has to be the name of a field"),
        ({"by": [1]}, "by has to be the name of a field"),
        ({"key": "a", "while_": "running"}, "while_='running' is not known: use 'waiting', 'live'"),
        ({"key": "a", "on_conflict": "fail"}, "on_conflict='fail' is not known"),
        ({"key": "a", "while_": "live", "on_conflict": "replace"}, "a job that runs cannot be replaced"),
        (
            {"key": "a", "while_": "live", "on_conflict": "debounce", "period": MINUTE},
            'needs while_="waiting"',
        ),
        ({"key": "a", "on_conflict": "throttle"}, "needs a period"),
        ({"key": "a", "period": MINUTE}, 'period belongs to on_conflict="debounce" and "throttle"'),
        ({"key": "a", "on_conflict": "throttle", "period": 60}, "write timedelta(seconds=60)"),
        ({"key": "a", "on_conflict": "throttle", "period": -MINUTE}, "period has to be positive"),
        ({"key": "a", "on_conflict": "throttle", "period": timedelta(days=9999)}, "at most 3650 days"),
        ({"key": "a", "on_conflict": "throttle", "period": timedelta(days=367)}, "at most 366 days"),
        ({"key": "a", "on_conflict": "throttle", "period": MINUTE, "longest": MINUTE}, "longest belongs to"),
        (
            {"key": "a", "on_conflict": "debounce", "period": MINUTE, "longest": MINUTE / 2},
            "is below period=0:01:00",
        ),
    ],
)
def test_unique_that_makes_no_sense_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument) as refused:
        pulse.Unique(**given)
    assert sentence in str(refused.value)


@each_row(
    "by, payload, key",
    [
        ("shop", b'{"shop": 7, "x": 1}', "shop=7"),
        ("shop", b'{"shop": "7"}', 'shop="7"'),
        (["b", "a"], b'{"a": null, "b": {"y": 1, "x": [true]}}', 'a=null,b={"x":[true],"y":1}'),
        (("a", "b"), b'{"b": 1, "a": 2}', "a=2,b=1"),
    ],
)
def test_key_is_made_of_the_fields_in_one_order(by: Any, payload: bytes, key: str) -> None:
    assert pulse.Unique(by=by).key_of(payload) == key


def test_long_key_is_hashed() -> None:
    first, second = (pulse.Unique(by="a").key_of(msgspec.json.encode({"a": text * 300})) for text in "xy")
    assert first.startswith("sha256=")
    assert len(first) <= 255
    assert first != second


@each_row(
    "payload, sentence",
    [
        (
            b'{"shop_id": 7}',
            "The arguments have no field 'shop', of which Unique makes its key. They have 'shop_id'",
        ),
        (b"", "They have none"),
        (b"[1]", "The arguments have no fields"),
        (b"\xff", "The arguments have no fields"),
    ],
)
def test_key_of_fields_that_are_not_there_is_refused(payload: bytes, sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match="Unique") as refused:
        pulse.Unique(by="shop").key_of(payload)
    assert sentence in str(refused.value)


async def test_unique_of_the_handler_is_the_default_of_its_jobs(fake: FakePulsed, p: pulse.Pulse) -> None:
    """By any way of this client."""

    @p.job("sync", unique=pulse.Unique(by="shop", while_="live"))
    async def sync(shop: int) -> None: ...

    handles = [
        await sync.enqueue(7),
        await p.enqueue("sync", {"shop": 7}),
        *await sync.enqueue_many([{"shop": 7}]),
        *await p.enqueue_many("sync", [{"shop": 7}]),
    ]
    assert {unique_of(fake, handle) for handle in handles} == {("shop=7", "live", "skip")}
    assert unique_of(fake, await p.enqueue("sync", {"shop": 7}, unique=False)) is None
    own = pulse.Unique("k", on_conflict="replace")
    assert unique_of(fake, await sync.options(unique=own).enqueue(7)) == ("k", "waiting", "replace")


async def test_items_of_a_bulk_have_keys_of_their_own(fake: FakePulsed, p: pulse.Pulse) -> None:
    items = [{"shop": 1}, pulse.JobItem({"shop": 2}), pulse.JobItem({"shop": 3}, unique=pulse.Unique("k"))]
    handles = await p.enqueue_many("sync", items, unique=pulse.Unique(by="shop"))

    assert [(unique_of(fake, handle) or [""])[0] for handle in handles] == ["shop=1", "shop=2", "k"]
    plain, own = await p.enqueue_many("t", [1, pulse.JobItem(2, unique=pulse.Unique("k"))])
    assert (unique_of(fake, plain), unique_of(fake, own)) == (None, ("k", "waiting", "skip"))


async def test_one_key_for_a_bulk_is_refused(p: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match="makes one job of all items"):
        await p.enqueue_many("sync", [1, 2], unique=pulse.Unique("k"))


async def test_what_is_no_unique_is_refused(p: pulse.Pulse) -> None:
    with pytest.raises(
        pulse.InvalidArgument, match=r"unique has to be a pulse.Unique\(…\), but 'k' was given"
    ):
        await p.enqueue("sync", unique="k")  # type: ignore[arg-type]
    with pytest.raises(pulse.InvalidArgument, match=r"unique has to be a pulse.Unique"):
        p.job("sync", unique="k")(lambda: None)  # type: ignore[call-overload]


async def test_debounce_with_a_start_is_refused(p: pulse.Pulse) -> None:
    unique = pulse.Unique("k", on_conflict="debounce", period=MINUTE)
    with pytest.raises(pulse.InvalidArgument, match="Give no delay and no run_at with a debounce"):
        await p.enqueue("sync", unique=unique, delay=MINUTE)


def test_handler_without_the_field_is_refused(p: pulse.Pulse) -> None:
    with pytest.raises(
        pulse.InvalidHandler, match="has no parameter 'shop_id', of which Unique makes its key"
    ):

        @p.job("sync", unique=pulse.Unique(by="shop_id"))
        async def sync(shop: int) -> None: ...


async def test_server_without_unique_jobs_is_detected_and_stores_none(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    fake.ignores_columns = True  # as a server of that version does

    with pytest.raises(pulse.Unavailable, match="a version without unique jobs, and did not store this one"):
        await p.enqueue("sync", unique=pulse.Unique("k"))
    assert fake.stored == {}
    items = [pulse.JobItem(1), pulse.JobItem(2, unique=pulse.Unique("k"))]
    with pytest.raises(pulse.PartialFailure) as failed:
        await p.enqueue_many("sync", items)
    assert list(failed.value.errors) == [1]
    assert len(fake.stored) == 1, "the others of the batch are stored"


async def test_server_without_overlap_is_detected(fake: FakePulsed, p: pulse.Pulse) -> None:
    assert (await p.schedule("t", None, pulse.Cron("@daily"), overlap="skip")).overlap == "skip"
    fake.knows_overlap = False

    with pytest.raises(pulse.Unavailable, match="a version without overlap='queue'"):
        await p.schedule("t", None, pulse.Cron("@daily"), overlap="queue")
    assert (await p.schedule("t", None, pulse.Cron("@daily"))).overlap == "allow"
    with pytest.raises(pulse.InvalidArgument, match="overlap='never' is not known"):
        await p.every("t", MINUTE, overlap="never")  # type: ignore[arg-type]


def test_sync_client_takes_the_same(fake: FakePulsed) -> None:
    with pulse.SyncPulse(fake.address) as p:
        handle = p.enqueue("sync", {"shop": 7}, unique=pulse.Unique(by="shop", on_conflict="replace"))
    assert unique_of(fake, handle) == ("shop=7", "waiting", "replace")
