"""The stored text of an error has its causes, its notes and the members of groups, and stays bounded."""

from __future__ import annotations

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

import pulse
from pulse import tuning
from pulse.error_text import describe
from pulse.outcomes import failure
from pulse_server.base.bounds import error_group
from tests.eventually import eventually
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.raising import raised
from tests.transport.pulse_server_under_test import ServerUnderTest


class RenderFailed(Exception):
    pass


def _refused() -> None:
    raise ConnectionRefusedError("the printer refused")


def _with_a_cause() -> None:
    try:
        _refused()
    except OSError as error:
        error.add_note("printer 7\nin the cellar")
        raise RenderFailed("page 3") from error


def _while_handling() -> None:
    try:
        _refused()
    except OSError:
        raise RenderFailed("page 3")  # noqa: B904


def _hidden() -> None:
    try:
        _refused()
    except OSError:
        raise RenderFailed("page 3") from None


def test_cause_is_named_in_the_first_line_and_shown_with_its_notes_and_frames() -> None:
    text = describe(raised(_with_a_cause))
    first, *_ = text.splitlines()
    assert first == "RenderFailed: page 3 [cause: ConnectionRefusedError: the printer refused]"
    caused_by = "\n\nCaused by ConnectionRefusedError: the printer refused\n"
    assert f"{caused_by}  Note: printer 7\n    in the cellar\n" in text
    assert "in _refused" in text
    assert "in _with_a_cause" in text


def test_error_that_was_being_handled_is_shown_unless_it_is_suppressed() -> None:
    text = describe(raised(_while_handling))
    assert text.startswith("RenderFailed: page 3 [cause: ConnectionRefusedError: the printer refused]\n")
    assert "\nWhile handling ConnectionRefusedError: the printer refused\n" in text
    assert "refused" not in describe(raised(_hidden))


def test_error_without_a_cause_reads_as_before() -> None:
    first, blank, frame, *_ = describe(raised(_refused)).split("\n")
    assert (first, blank) == ("ConnectionRefusedError: the printer refused", "")
    assert frame.startswith('  File "')


def test_members_of_nested_groups_are_shown_and_the_first_is_the_cause() -> None:
    inner = BaseExceptionGroup("inner", [asyncio.CancelledError(), KeyError("k")])
    text = describe(BaseExceptionGroup("outer", [inner, OSError("disk")]))
    assert text.splitlines()[0] == "BaseExceptionGroup: outer (2 sub-exceptions) [cause: KeyError: 'k']"
    assert [line for line in text.splitlines() if line.startswith("Sub-exception")] == [
        "Sub-exception 1: BaseExceptionGroup: inner (2 sub-exceptions)",
        "Sub-exception 1.1: CancelledError",
        "Sub-exception 1.2: KeyError: 'k'",
        "Sub-exception 2: OSError: disk",
    ]


async def test_time_limit_of_asyncio_is_not_blamed_on_its_cancellation() -> None:
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0):
            await asyncio.sleep(60)
    assert describe(caught.value).splitlines()[0] == "TimeoutError"


@each_row("choice", [pulse.Retry(reason="busy"), pulse.Discard("busy")])
def test_choice_of_the_handler_shows_its_reason_and_the_cause(choice: Exception) -> None:
    choice.__cause__ = raised(_refused)
    text = failure(choice).error
    assert text.startswith("busy [cause: ConnectionRefusedError: the printer refused]\n")
    assert "in _refused" in text


def _refuse(page: int) -> None:
    raise ValueError(f"page {page} is empty")


def test_traceback_of_a_pool_is_shown_and_is_no_cause() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        error = pool.submit(_refuse, 3).exception()
    assert error is not None

    text = describe(error)

    assert text.startswith("ValueError: page 3 is empty\n")
    assert "\n  In a process of a pool:\n" in text
    assert 'raise ValueError(f"page {page} is empty")' in text
    assert "RemoteTraceback" not in text
    assert error_group(text) == error_group("ValueError: page 3 is empty")


def test_circle_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert describe(one).count("ValueError: other") == 2


def test_long_chain_is_bounded_and_keeps_its_innermost_cause() -> None:
    error: Exception = KeyError("innermost")
    for number in range(150):
        wrapped = ValueError(f"level {number} " + "ü" * 3000)
        wrapped.__cause__ = error
        error = wrapped
    text = describe(error)
    assert len(text.encode()) <= tuning.ERROR_BYTES
    assert text.splitlines()[0].endswith("… [cause: KeyError: 'innermost']")
    assert "\nCaused by KeyError: 'innermost'" in text
    assert "(141 more errors are not shown.)" in text
    assert error_group(text) == error_group("KeyError: 'x'")


def test_large_group_is_bounded() -> None:
    text = describe(ExceptionGroup("many", [ValueError("x" * 5000) for _ in range(1000)]))
    assert len(text.encode()) <= tuning.ERROR_BYTES
    assert "more errors are not shown" in text


def test_hostile_exceptions_have_a_text() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    hostile = Unprintable()
    hostile.__notes__ = "no list"  # type: ignore[assignment]
    assert "cannot be printed" in describe(hostile)
    hostile.__notes__ = [Unprintable()]  # type: ignore[list-item]
    assert "Note: (its message cannot be printed)" in describe(hostile)


async def test_dead_letters_of_one_cause_are_one_group_however_they_were_raised(
    server: ServerUnderTest, running: Running
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("render")
        async def render(way: int) -> None:
            if way == 0:
                _refused()
            if way == 1:
                _with_a_cause()
            if way == 2:
                _while_handling()
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(_with_a_cause))

        await p.enqueue_many("render", [{"way": way} for way in range(4)], max_attempts=1)
        async with running(p):
            await eventually(lambda: _dead(p, 4))
        (group,) = (await p.dead_letters()).groups
        assert group.count == 4
        texts = [job.last_error or "" async for job in p.iter_jobs(topic="render")]
        assert any("TaskGroup" in text and "the printer refused" in text for text in texts)


async def _dead(p: pulse.Pulse, count: int) -> bool:
    return len([job async for job in p.iter_jobs(status=pulse.JobStatus.DEAD_LETTERED)]) == count
