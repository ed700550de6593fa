"""Options of a handler: what `@p.job` and `register` take besides the topic."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse.handlers.handler import NO_OPTIONS
from tests.rows import each_row

SECOND = timedelta(seconds=1)


def wait(attempt: int, error: object) -> timedelta:
    return SECOND


async def wait_async(attempt: int, error: object) -> timedelta:
    return SECOND


class Unknown:
    """A callable whose parameters cannot be inspected, as those of extension modules."""

    __signature__ = "unknown"

    def __call__(self, *args: object) -> timedelta:
        return SECOND


def test_handler_keeps_the_options_of_its_decorator() -> None:
    for client in (pulse.Pulse(), pulse.SyncPulse()):

        @client.job("t", max_attempts=8, timeout=timedelta(minutes=2), retry_on=OSError)
        def handle() -> None: ...

        options = handle._handler.options
        assert (options.max_attempts, options.timeout) == (8, timedelta(minutes=2))
        assert options.retry_on == (OSError,)
        assert client.register("u", lambda: None, priority=5)._handler.options.priority == 5
        assert client.register("v", lambda: None)._handler.options is NO_OPTIONS


@each_row(
    "options, sentence",
    [
        ({"timeout": 5}, r"timeout has to be a timedelta: write timedelta\(seconds=5\)"),
        ({"start_within": 1.5}, r"write timedelta\(seconds=1\.5\)"),
        ({"timeout": timedelta(0)}, "has to be positive"),
        ({"timeout": "5s"}, r"a timedelta, such as timedelta\(minutes=5\)"),
        ({"timeout": timedelta(days=9999)}, "at most 3650 days"),
        ({"max_attempts": 0}, "from 1"),
        ({"max_attempts": True}, "from 1"),
        ({"max_attempts": 1001}, "from 1 to 1,000, but 1001"),
        ({"priority": "high"}, "priority has to be a whole number"),
        ({"priority": 2**31}, "from -2,147,483,648 to 2,147,483,647, but"),
        ({"retry_on": ("OSError",)}, "exception classes"),
        ({"discard_on": 5}, "exception classes"),
        ({"retry": 5}, r"pulse\.Backoff\(…\) or a function"),
        ({"retry": lambda attempt: SECOND}, r"of \(attempt, error\), but .* cannot be called with"),
        ({"retry": functools.partial(wait, 1, error=None)}, "cannot be called with these two"),
        ({"retry": wait_async}, "a `def` function, .* is async"),
        ({"retry": functools.partial(wait_async, 1)}, "is async"),
        ({"process": 1}, "True or False"),
        ({"max_retries": 5}, "no option 'max_retries'. Its options are max_attempts, "),
    ],
)
def test_option_that_is_wrong_is_refused_where_the_handler_is_written(options: Any, sentence: str) -> None:
    for client in (pulse.Pulse(), pulse.SyncPulse()):
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            client.job("t", **options)
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            client.register("t", lambda: None, **options)
        assert client.handled_topics == ()


@each_row(
    "retry",
    [
        wait,
        lambda *_: SECOND,
        lambda attempt, error, factor=2: SECOND,
        functools.partial(wait),
        Unknown(),
        Unknown().__call__,
    ],
)
def test_retry_function_that_may_take_attempt_and_error_is_accepted(retry: Any) -> None:
    assert pulse.Pulse().register("t", lambda: None, retry=retry)._handler.options.retry is retry


@each_row(
    "values, sentence",
    [
        ({"first": 2}, r"write timedelta\(seconds=2\)"),
        ({"factor": 0.5}, "from 1 to 100"),
        ({"jitter": 2}, "from 0 to 1"),
        ({"first": timedelta(hours=2)}, "shorter than first"),
    ],
)
def test_backoff_that_makes_no_sense_is_refused(values: Any, sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        pulse.Backoff(**values)
