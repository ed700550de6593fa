"""Middleware surrounds every enqueue: it adds metadata, changes the priority, or refuses."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from typing import Any

import pytest

import pulse
from tests.sdk.fake_pulsed import FakePulsed

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="")


async def test_middleware_changes_the_jobs_of_every_enqueue(fake: FakePulsed, p: pulse.Pulse) -> None:
    order: list[Any] = []

    @p.enqueue_middleware
    async def outer(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        order.append(("outer", enqueue.topic, list(enqueue.payloads)))
        enqueue.metadata["tenant"] = tenant.get()
        enqueue.metadata.pop("secret", None)
        await call_next()

    @p.enqueue_middleware
    async def inner(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> pulse.JobHandle:
        order.append(("inner", enqueue.metadata["tenant"]))
        enqueue.priority += 5
        handle: pulse.JobHandle = await call_next()
        return handle

    @p.job("work")
    async def handle(number: int) -> None: ...

    tenant.set("ada")
    stored = await p.enqueue("work", {"number": 1}, metadata={"secret": "x", "kept": "y"}, priority=1)
    assert isinstance(stored, pulse.JobHandle)
    await handle.enqueue(2)
    many = await p.enqueue_many("work", [{"number": 3}, {"number": 4}])
    assert len(many) == 2
    assert order[:2] == [("outer", "work", [b'{"number":1}']), ("inner", "ada")]
    assert order[4] == ("outer", "work", [b'{"number":3}', b'{"number":4}'])
    requests = list(fake.stored.values())
    assert [dict(request.metadata) for request in requests] == [
        {"tenant": "ada", "kept": "y"},
        *[{"tenant": "ada"}] * 3,
    ]
    assert [request.priority for request in requests] == [6, 5, 5, 5]


async def test_items_keep_options_of_their_own_that_middleware_does_not_change(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    @p.enqueue_middleware
    async def stamp(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        enqueue.metadata["tenant"] = "ada"
        await call_next()

    await p.enqueue_many("work", [1, pulse.JobItem(2, priority=7, metadata={"own": "x"})], priority=1)
    by_payload = {request.payload: request for request in fake.stored.values()}
    assert [by_payload[key].priority for key in (b"1", b"2")] == [1, 7]
    assert dict(by_payload[b"1"].metadata) == {"tenant": "ada"}
    assert dict(by_payload[b"2"].metadata) == {"own": "x", "tenant": "ada"}


async def test_middleware_that_raises_refuses_the_jobs(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.enqueue_middleware
    async def refuse(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        raise PermissionError("not today")

    with pytest.raises(PermissionError, match="not today"):
        await p.enqueue("work")
    with pytest.raises(PermissionError, match="not today"):
        await p.enqueue_many("work", [None])
    assert not fake.stored


async def test_middleware_that_forgets_the_jobs_is_an_error_and_not_a_lost_job(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    @p.enqueue_middleware
    async def forgetful(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        pass

    with pytest.raises(pulse.InvalidMiddleware, match="forgetful returned, and the jobs are not known"):
        await p.enqueue("work")


async def test_metadata_that_cannot_be_sent_is_refused_with_a_sentence(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    @p.enqueue_middleware
    async def wrong(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        enqueue.metadata["user"] = 7  # type: ignore[assignment]
        await call_next()

    with pytest.raises(pulse.InvalidArgument, match="maps strings to strings"):
        await p.enqueue("work")


async def test_metadata_that_is_no_dictionary_is_refused_with_a_sentence(p: pulse.Pulse) -> None:
    @p.enqueue_middleware
    async def wrong(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        enqueue.metadata = None  # type: ignore[assignment]
        await call_next()

    with pytest.raises(pulse.InvalidArgument, match="metadata of the jobs to None"):
        await p.enqueue("work")


async def test_what_a_call_that_failed_had_set_is_not_in_the_next(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.enqueue_middleware
    async def again(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        enqueue.metadata.update(tenant="wrong", bad=1)  # type: ignore[call-overload]
        with contextlib.suppress(pulse.InvalidArgument):
            await call_next()
        enqueue.metadata.pop("bad")
        await call_next()
        enqueue.metadata.clear()
        await call_next()

    handle = await p.enqueue("work", metadata={"own": "1"})
    assert fake.stored[handle.id].metadata == {}


def test_middleware_of_a_blocking_client_runs_in_the_thread_of_the_caller(fake: FakePulsed) -> None:
    threads: list[int] = []
    local = threading.local()
    with pulse.SyncPulse(fake.address) as p:

        @p.enqueue_middleware
        def stamp(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
            threads.append(threading.get_ident())
            enqueue.metadata["tenant"] = local.tenant
            enqueue.priority = 3
            assert call_next() is not None

        @p.job("work")
        def handle(number: int) -> None: ...

        local.tenant = "ada"
        assert p.enqueue("work", {"number": 1}, metadata={"kept": "y"}).topic == "work"
        assert handle.enqueue(2).topic == "work"
        assert len(p.enqueue_many("work", iter([{"number": 3}]))) == 1
    assert set(threads) == {threading.get_ident()}
    requests = list(fake.stored.values())
    assert [dict(request.metadata) for request in requests] == [
        {"kept": "y", "tenant": "ada"},
        {"tenant": "ada"},
        {"tenant": "ada"},
    ]
    assert {request.priority for request in requests} == {3}


def test_blocking_middleware_can_refuse_and_cannot_forget(fake: FakePulsed) -> None:
    with pulse.SyncPulse(fake.address) as p:

        @p.enqueue_middleware
        def strict(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
            if enqueue.topic == "refused":
                raise PermissionError("not today")

        with pytest.raises(PermissionError, match="not today"):
            p.enqueue("refused")
        with pytest.raises(pulse.InvalidMiddleware, match="strict returned, and the jobs are not known"):
            p.enqueue_many("work", [None])
    assert not fake.stored


def test_middleware_of_the_wrong_kind_is_refused_where_it_is_registered() -> None:
    def plain(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None: ...

    async def waits(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None: ...

    with pytest.raises(pulse.InvalidMiddleware, match="async def"):
        pulse.Pulse().enqueue_middleware(plain)
    with pytest.raises(pulse.InvalidMiddleware, match="plain function"):
        pulse.SyncPulse().enqueue_middleware(waits)


@pytest.mark.parametrize(
    ("metadata", "priority", "sentence"),
    [
        ({"tenant": 1}, 0, "maps strings to strings, but 'tenant' has 1"),
        ({}, "high", "Middleware set a priority .* a whole number from .*, but 'high' was given"),
        ({}, 2**31, "Middleware set a priority .* to 2,147,483,647, but 2147483648 was given"),
        ({}, None, "Middleware set a priority .* a whole number from .*, but None was given"),
    ],
)
async def test_value_that_cannot_be_sent_is_named(
    p: pulse.Pulse, metadata: Any, priority: Any, sentence: str
) -> None:
    @p.enqueue_middleware
    async def change(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        enqueue.metadata.update(metadata)
        enqueue.priority = priority
        await call_next()

    with pytest.raises(pulse.InvalidArgument, match=sentence):
        await p.enqueue("work")
