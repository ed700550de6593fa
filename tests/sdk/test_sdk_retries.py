"""What a failure means for the job: by the options of its handler, and by what the handler raises."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed

Options = dict[str, Any]


async def result_of(
    fake: FakePulsed, p: pulse.Pulse, running: Running, error: BaseException, options: Options, **fields: Any
) -> pb.Result:
    """Return what the worker reports for a handler with these options that raises this error."""

    async def handle() -> None:
        raise error

    p.register("work", handle, **options)
    async with running(p):
        fake.deliver("j", **fields)
        await fake.until_async(lambda: "j" in fake.results)
    return fake.results["j"]


class Group(ExceptionGroup[Exception]):
    pass


IN_A_GROUP = Group("two", [KeyError("a"), Group("inner", [ValueError("b")])])


@pytest.mark.parametrize(
    ("options", "error", "discard"),
    [
        ({"retry_on": (OSError,)}, ConnectionError("refused"), False),
        ({"retry_on": (OSError,)}, ValueError("bad"), True),
        ({"discard_on": ValueError}, ValueError("bad"), True),
        ({"discard_on": ValueError}, OSError("refused"), False),
        ({"retry_on": (OSError,), "discard_on": (ConnectionError,)}, ConnectionError("refused"), True),
        ({"retry_on": (ValueError,)}, IN_A_GROUP, False),
        ({"retry_on": (OSError,)}, IN_A_GROUP, True),
        ({"discard_on": (ValueError,)}, IN_A_GROUP, True),
        ({"discard_on": (Exception,)}, pulse.Retry(), False),
        ({"priority": 1}, ValueError("bad"), False),
    ],
)
async def test_options_choose_which_errors_are_retried(
    fake: FakePulsed, p: pulse.Pulse, running: Running, options: Options, error: Exception, discard: bool
) -> None:
    result = await result_of(fake, p, running, error, options)
    assert (result.discard, result.success) == (discard, False)
    assert result.error


async def test_retry_function_chooses_the_delay_by_attempt_and_error(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    def delay(attempt: int, error: BaseException) -> timedelta:
        return timedelta(seconds=attempt * 100 + len(str(error)))

    result = await result_of(fake, p, running, ValueError("four"), {"retry": delay}, attempt=3, run=7)
    assert result.retry_after.ToTimedelta() == timedelta(seconds=304)
    assert result.retry_after_is_policy


async def test_delay_that_the_handler_raises_is_its_own(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    options: Options = {"retry": lambda attempt, error: timedelta(hours=1)}
    result = await result_of(fake, p, running, pulse.Retry(timedelta(seconds=5)), options)
    assert result.retry_after.ToTimedelta() == timedelta(seconds=5)
    assert not result.retry_after_is_policy


def _broken(attempt: int, error: BaseException) -> timedelta:
    raise SystemExit("broken")


async def _coroutine(attempt: int, error: BaseException) -> timedelta:
    return timedelta(1)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (_broken, "broken"),
        (lambda attempt, error: 5, r"write timedelta\(seconds=5\)"),
        (lambda attempt, error: timedelta(seconds=-1), "cannot lie in the past"),
        (lambda attempt, error: timedelta.max, "at most 3650 days"),
        (lambda attempt, error: None, "has to be a timedelta"),
        (lambda attempt, error: _coroutine(attempt, error), "async function"),
    ],
)
async def test_broken_retry_function_does_not_lose_the_failure(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    caplog: pytest.LogCaptureFixture,
    function: Callable[..., Any],
    sentence: str,
) -> None:
    result = await result_of(fake, p, running, ValueError("the failure"), {"retry": function})
    assert result.error.startswith("ValueError: the failure")
    assert not result.HasField("retry_after")
    assert "The retry function of 'work' failed, so the server's backoff applies" in caplog.text
    assert re.search(sentence, caplog.text)
    # No event of Sentry. gRPC may log for the loop of another test.
    assert {record.levelname for record in caplog.records if record.name != "asyncio"} == {"WARNING"}


async def test_snooze_is_neither_a_success_nor_a_failure(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    error = pulse.Snooze(timedelta(minutes=5), "the export is not there yet")
    result = await result_of(fake, p, running, error, {"discard_on": Exception})
    assert result.snooze.ToTimedelta() == timedelta(minutes=5)
    assert result.error == "the export is not there yet"
    assert (result.success, result.discard, result.HasField("retry_after")) == (False, False, False)
    assert [record.levelname for record in caplog.records if "snoozed" in record.getMessage()] == ["INFO"]


@each_row("delay", [5, timedelta(0), timedelta(seconds=-1), timedelta.max, None])
def test_snooze_takes_a_positive_timedelta(delay: Any) -> None:
    with pytest.raises(pulse.InvalidArgument, match=r"Snooze\(delay\) has to be"):
        pulse.Snooze(delay)


async def test_undecodable_job_is_retried_where_a_rolling_deploy_asks_for_it(
    fake: FakePulsed, running: Running
) -> None:
    async with pulse.Pulse(fake.address, retry_undecodable=True) as p:

        async def handle(to: str) -> None: ...

        p.register("work", handle)
        async with running(p):
            fake.deliver("j", payload=b'{"too": 1}')
            await fake.until_async(lambda: "j" in fake.results)
    assert "cannot be decoded" in fake.results["j"].error
    assert not fake.results["j"].discard


async def test_undecodable_job_is_logged_without_lines_of_the_sdk(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @p.job("work")
    async def work(number: int) -> None: ...

    async with running(p):
        fake.deliver("j", payload=b'{"number": "one"}')
        await fake.until_async(lambda: "j" in fake.results)
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info, "Sentry makes its event of the exception"
    text = logging.Formatter().format(record)
    assert "Expected `int`, got `str` - at `$.number`" in text
    assert "Traceback" not in text
