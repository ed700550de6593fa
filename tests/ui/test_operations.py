"""Actions on many jobs that go on in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pulse
from pulse_ui.web.operations import Operation, Operations
from tests.eventually import PATIENCE_SECONDS


def begin(operations: Operations, steps: AsyncGenerator[int, None], total: int | None = 3) -> Operation:
    return operations.begin(steps, title="Retry 3 jobs", done_word="retried", total=total, back="/jobs")


async def ended(operation: Operation) -> Operation:
    assert operation.task is not None
    await asyncio.wait_for(asyncio.wait({operation.task}), PATIENCE_SECONDS)
    return operation


async def counting(*numbers: int) -> AsyncGenerator[int, None]:
    for number in numbers:
        yield number


async def test_operation_ends_with_how_many_it_were() -> None:
    operation = await ended(begin(Operations(), counting(1, 2)))
    assert (operation.state, operation.done, operation.skipped) == ("done", 2, 1)


async def test_stop_takes_effect_after_the_current_batch() -> None:
    batch, under_way, batches = asyncio.Event(), asyncio.Event(), []

    async def steps() -> AsyncGenerator[int, None]:
        for number in (500, 1000, 1500):
            batches.append(number)
            under_way.set()
            await batch.wait()
            yield number

    operation = begin(Operations(), steps())
    await under_way.wait()
    operation.stop()
    assert operation.is_running
    batch.set()
    await ended(operation)
    assert (operation.state, operation.done, batches) == ("stopped", 500, [500])


async def test_refusal_ends_the_operation_with_its_sentence() -> None:
    async def steps() -> AsyncGenerator[int, None]:
        yield 1
        raise pulse.InvalidArgument("status is missing.")

    operation = await ended(begin(Operations(), steps()))
    assert (operation.state, operation.done, operation.error) == ("failed", 1, "status is missing.")
    assert not operation.is_uncertain


async def test_lost_answer_leaves_one_batch_uncertain() -> None:
    async def steps() -> AsyncGenerator[int, None]:
        yield 1
        raise pulse.Unavailable("No answer.")

    operation = await ended(begin(Operations(), steps()))
    assert operation.state == "failed"
    assert operation.is_uncertain


async def test_unexpected_failure_is_reported_without_details() -> None:
    async def steps() -> AsyncGenerator[int, None]:
        yield 1
        raise ZeroDivisionError("secret")

    operation = await ended(begin(Operations(), steps()))
    assert operation.state == "failed"
    assert "secret" not in operation.error


async def test_closing_stops_what_is_under_way() -> None:
    under_way, is_closed = asyncio.Event(), asyncio.Event()

    async def steps() -> AsyncGenerator[int, None]:
        try:
            under_way.set()
            await asyncio.Event().wait()
            yield 1
        finally:
            is_closed.set()

    operations = Operations()
    operation = begin(operations, steps())
    await under_way.wait()
    await operations.close()
    assert operation.state == "stopped"
    assert is_closed.is_set()


async def test_only_the_last_operations_are_kept() -> None:
    operations = Operations()
    numbers = [(await ended(begin(operations, counting()))).number for _ in range(30)]
    kept = [number for number in numbers if operations.get(number) is not None]
    assert kept == numbers[-20:]


async def test_rest_is_estimated_from_the_rate_so_far() -> None:
    moments = iter([100.0])
    operation = Operation(1, "Retry", "retried", 300, "/jobs", clock=lambda: next(moments, 110.0))
    operation.done = 100
    assert (operation.rate, operation.seconds_left) == (10.0, 20.0)


async def test_undo_is_offered_for_what_was_done_or_may_have_been() -> None:
    async def lost() -> AsyncGenerator[int, None]:
        raise pulse.Unavailable("No answer.")
        yield 0

    async def undoable(steps: AsyncGenerator[int, None], undo_id: str = "a") -> bool:
        begun = Operations().begin(
            steps, title="Retry", done_word="retried", total=3, back="/jobs", undo_id=undo_id
        )
        return (await ended(begun)).can_be_undone

    assert await undoable(counting(1))
    assert await undoable(lost())
    assert not await undoable(counting(0))
    assert not await undoable(counting(1), undo_id="")


async def test_uncounted_operation_has_no_rest() -> None:
    operation = await ended(begin(Operations(), counting(7), total=None))
    assert (operation.seconds_left, operation.skipped) == (None, 0)
