"""The class and the traceback of an error are read back from its stored text."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

import pulse
from pulse import tuning
from pulse.error_text import CLASS_LABEL, class_path_of, describe, traceback_of
from pulse.outcomes import failure
from pulse_server.base.bounds import error_group
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.raising import raised
from tests.transport.pulse_server_under_test import ServerUnderTest

HERE = __name__


class Declined(Exception):
    """An error of an application."""


class Payments:
    class Refused(Exception):
        """An error in a class."""


def _plain() -> None:
    raise ValueError("page 3")


def _without_message() -> None:
    raise KeyboardInterrupt


def _own() -> None:
    raise Declined("card 7: no\n  File not found\nask the bank")


def _with_a_cause() -> None:
    try:
        _plain()
    except ValueError as error:
        error.add_note("tray 2")
        raise Declined("x" * 500) from error


def _while_handling() -> None:
    try:
        _with_a_cause()
    except Declined:
        raise Payments.Refused("gone")  # noqa: B904


@each_row("function", [_plain, _without_message, _own, _with_a_cause, _while_handling])
def test_traceback_reads_as_python_prints_it(function: Callable[[], object]) -> None:
    error = raised(function)
    assert traceback_of(describe(error)) == "".join(traceback.format_exception(error))


@each_row(
    "error, path",
    [
        (ValueError("x"), "builtins.ValueError"),
        (ValueError(), "builtins.ValueError"),
        (Declined("x"), f"{HERE}.Declined"),
        (Payments.Refused("x"), f"{HERE}.Payments.Refused"),
    ],
)
def test_class_path_is_stored(error: Exception, path: str) -> None:
    assert class_path_of(failure(error).error) == path


@each_row("choice", [pulse.Discard("no card"), pulse.Retry(reason="no card")])
def test_choice_of_the_handler_is_its_reason_alone(choice: Exception) -> None:
    assert failure(choice).error == "no card"
    assert class_path_of("no card") is None


@each_row("text", ["worker lease expired", "time limit exceeded", "", "Value", "print: x", "ValueErrors: x"])
def test_text_without_an_exception_has_no_class_and_no_traceback(text: str) -> None:
    assert class_path_of(text) is None
    assert traceback_of(text) is None


@each_row("kind", [ValueError, Declined, pulse.Retry])
def test_message_cannot_pass_for_the_class(kind: type[Exception]) -> None:
    message = f"x\n{CLASS_LABEL}os.Evil"
    error = kind(reason=message) if kind is pulse.Retry else kind(message)
    assert class_path_of(failure(error).error) == f"{kind.__module__}.{kind.__qualname__}"


def test_class_survives_a_long_message_and_the_cut_of_the_history() -> None:
    text = describe(Declined("ü" * 20_000))
    assert len(text.encode()) <= tuning.ERROR_BYTES
    assert class_path_of(text) == f"{HERE}.Declined"
    assert class_path_of(describe(raised(_own))[:1000]) == f"{HERE}.Declined"


def test_class_does_not_change_the_group() -> None:
    assert error_group(describe(Declined("card 7"))) == error_group("Declined: card 8")
    assert error_group(describe(raised(_while_handling))) == error_group("ValueError: page 4")


def test_members_of_a_group_follow_it() -> None:
    text = traceback_of(describe(ExceptionGroup("two", [raised(_own), raised(_with_a_cause)])))
    assert text is not None
    assert text.startswith(
        "ExceptionGroup: two (2 sub-exceptions)\n+---------------- 1 ----------------\nTrace"
    )
    assert text.index("tray 2") < text.index("direct cause") < text.index(f"{HERE}.Declined: xxx")


def _deep(levels: int) -> None:
    if levels:
        _deeper(levels - 1)  # not itself: Python prints repeated frames once
    raise ValueError("deep")


def _deeper(levels: int) -> None:
    _deep(levels)


def test_deep_stack_keeps_its_first_and_last_frames() -> None:
    text = describe(raised(lambda: _deep(50)))
    assert text.count("  File ") == tuning.TRACEBACK_FIRST_FRAMES + tuning.TRACEBACK_LAST_FRAMES
    assert "in raised" in text
    assert 'raise ValueError("deep")' in text
    assert "frames are not shown.)" in text


def test_hostile_class_has_a_text() -> None:
    hostile = type("A B\n" * 200, (Exception,), {"__module__": None})
    assert describe(hostile("x"))


def test_broken_text_is_read() -> None:
    text = describe(raised(_while_handling))
    for end in range(0, len(text), 7):
        class_path_of(text[:end])
        traceback_of(text[:end])


async def test_failed_job_has_the_class_and_the_traceback(server: ServerUnderTest, running: Running) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("charge")
        async def charge() -> None:
            _with_a_cause()

        handle = await p.enqueue("charge", max_attempts=1)
        async with running(p):
            job = await handle.wait()
            with pytest.raises(pulse.JobFailed) as caught:
                await handle.result()
        error = caught.value
        assert job.error_class == error.error_class == f"{HERE}.Declined"
        assert error.traceback == job.traceback
        assert (job.traceback or "").splitlines()[0] == "Traceback (most recent call last):"
        assert (job.traceback or "").endswith(f"{HERE}.Declined: {'x' * 500}\n")
        assert job.history[0].error_class == job.error_class
