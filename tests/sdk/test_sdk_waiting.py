"""Waiting for jobs: results in their types, failures as errors of their own, over one stream."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, TypedDict

import pydantic
import pytest

import pulse
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest

LONG = timedelta(seconds=40)
SHORT = timedelta(milliseconds=50)


@dataclasses.dataclass
class Invoice:
    number: int


class Model(pydantic.BaseModel):
    number: int


class Typed(TypedDict):
    number: int


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_result_is_what_the_handler_returned(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work(number: int) -> list[int]:
        return [number]

    async with running(p):
        handle = await work.enqueue(7)
        assert await handle.result(LONG) == [7]
        assert await handle.result() == [7], "a second time, long after it has finished"


@pytest.mark.parametrize("kind", [Invoice, Model, Typed])
async def test_result_has_the_type_that_the_handler_returns(
    p: pulse.Pulse, running: Running, kind: Any
) -> None:
    async def make(number: int) -> Any:
        return kind(number=number)

    make.__annotations__["return"] = kind | None
    job = p.register("work", make)
    async with running(p):
        result = await (await job.enqueue(7)).result(LONG)
        assert result == kind(number=7)
        assert type(result) is type(kind(number=7))
        known_by_topic = await (await p.enqueue("work", {"number": 8})).result(LONG)
        assert known_by_topic == kind(number=8)


async def test_result_of_a_job_of_another_client_is_plain(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work() -> Invoice:
        return Invoice(7)

    async with running(p), pulse.Pulse(p.address) as other:
        handle = await other.enqueue("work")
        assert await handle.result(LONG) == {"number": 7}
        assert await p.handle(handle.id, "work").result(LONG) == Invoice(7)
        assert await work.handle(handle.id).result(LONG) == Invoice(7)
        assert await p.handle(handle.id).result(LONG) == {"number": 7}


async def test_handler_that_returns_nothing_has_the_result_none(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work() -> None: ...

    async with running(p):
        assert await (await work.enqueue()).result(LONG) is None  # type: ignore[func-returns-value]


async def test_object_in_an_annotation_is_any_json_in_arguments_steps_and_results(
    p: pulse.Pulse, running: Running
) -> None:
    def plain() -> object:
        return [1, "two"]

    def mixed() -> dict[str, object]:
        return {"a": 1, "b": [None]}

    @p.job("work")
    async def work(facts: dict[str, object], ctx: pulse.Context) -> dict[str, object]:
        return {
            **facts,
            "plain": await ctx.step("plain", plain),
            "mixed": await ctx.step("mixed", mixed),
        }

    async with running(p):
        result = await (await work.enqueue({"n": 7})).result(LONG)
    assert result == {"n": 7, "plain": [1, "two"], "mixed": {"a": 1, "b": [None]}}


async def test_result_that_does_not_fit_its_type_is_an_error_that_names_it(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> Invoice:
        return {"number": "seven"}  # type: ignore[return-value]

    async with running(p):
        with pytest.raises(pulse.InvalidArgument, match=r"The result cannot be read as .*Invoice.*number"):
            await (await work.enqueue()).result(LONG)


async def test_dead_letter_raises_job_failed_with_its_error_and_history(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> int:
        raise ValueError("no such order")

    async with running(p):
        handle = await work.options(max_attempts=1).enqueue()
        with pytest.raises(
            pulse.JobFailed, match="failed after 1 attempt: ValueError: no such order"
        ) as raised:
            await handle.result(LONG)
        info = await handle.wait(LONG)
    error = raised.value
    assert (error.job_id, error.attempts, [past.outcome for past in error.history]) == (
        handle.id,
        1,
        ["failed"],
    )
    assert "Traceback" in error.error or "raise ValueError" in error.error
    assert info.status == "DEAD_LETTERED"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.job_id) == (str(error), handle.id)


async def test_canceled_job_raises_job_canceled_with_its_reason(p: pulse.Pulse) -> None:
    handle = await p.enqueue("work")
    wait = asyncio.ensure_future(handle.result(LONG))
    await p.cancel(handle.id, "not needed")
    with pytest.raises(pulse.JobCanceled, match="was canceled: not needed") as raised:
        await wait
    assert raised.value.reason == "not needed"
    assert (await handle.wait(LONG)).status == "CANCELED"


async def test_job_that_does_not_finish_in_time_raises_result_timeout(p: pulse.Pulse) -> None:
    handle = await p.enqueue("work")
    with pytest.raises(pulse.ResultTimeout, match=r"has not finished after 0:00:00\.05") as raised:
        await handle.result(SHORT)
    assert isinstance(raised.value, TimeoutError)
    with pytest.raises(pulse.ResultTimeout, match="2 of 2 jobs have not finished"):
        await pulse.gather(handle, await p.enqueue("work"), timeout=SHORT)


async def test_deleted_job_raises_result_gone(p: pulse.Pulse) -> None:
    handle = await p.enqueue("work")
    await p.cancel(handle.id)
    await p.delete(handle.id)
    with pytest.raises(pulse.ResultGone, match=f"no job {handle.id}") as raised:
        await handle.result(LONG)
    assert raised.value.job_id == handle.id
    assert isinstance(raised.value, pulse.NotFound)


async def test_wait_for_an_id_that_no_job_can_have_does_not_disturb_others(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> int:
        return 1

    handle = await work.enqueue()
    waiting = asyncio.create_task(handle.result())
    with pytest.raises(pulse.ResultGone):
        await p.handle("123").wait()
    async with running(p):
        assert await waiting == 1


async def test_gather_returns_results_in_the_order_of_the_handles(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work(number: int) -> int:
        return number

    handles = await work.enqueue_many([{"number": number} for number in range(50)])
    async with running(p):
        assert await pulse.gather(*handles, handles[0], timeout=LONG) == [*range(50), 0]
    assert await pulse.gather() == []


async def test_gather_raises_the_first_failure_or_returns_it(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work(number: int) -> int:
        raise pulse.Discard("refused")

    @p.job("never")
    async def never() -> None: ...

    async with running(p):
        failing, waiting = await work.enqueue(1), await never.options(delay=timedelta(hours=1)).enqueue()
        with pytest.raises(pulse.JobFailed, match="refused"):
            await pulse.gather(waiting, failing, timeout=LONG)
        (error,) = await pulse.gather(failing, timeout=LONG, return_exceptions=True)
        assert isinstance(error, pulse.JobFailed)
    assert not p._caller.session().awaiting._waits, "nothing is waited for any longer"


async def test_as_completed_yields_handles_as_their_jobs_finish(p: pulse.Pulse, running: Running) -> None:
    go = asyncio.Event()

    @p.job("work")
    async def work(number: int) -> int:
        if number == 0:
            await go.wait()
        if number == 2:
            raise pulse.Discard("refused")
        return number

    handles = await work.enqueue_many([{"number": number} for number in range(3)])
    found: list[Any] = []
    async with running(p):
        async for handle in pulse.as_completed(handles, timeout=LONG):
            assert handle in handles
            try:
                found.append(await handle.result())
            except pulse.JobFailed:
                found.append("failed")
            if len(found) == 2:
                go.set()
    assert sorted(map(str, found[:2])) == ["1", "failed"]
    assert found[2] == 0


def test_handle_without_a_client_says_so() -> None:
    with pytest.raises(pulse.ClientClosed, match="has no client"):
        pulse.JobHandle("id", "topic").result()


async def test_handle_of_a_client_is_a_plain_value(p: pulse.Pulse) -> None:
    handle = await p.enqueue("work")
    assert handle == pulse.JobHandle(handle.id, "work")
    assert pickle.loads(pickle.dumps(handle)) == handle
    assert repr(handle).startswith(f"JobHandle(id={handle.id!r}, topic='work', duplicate=False, ")
    assert hash(handle) == hash(pulse.JobHandle(handle.id, "work"))
