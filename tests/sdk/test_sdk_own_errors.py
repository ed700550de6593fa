"""Nothing but the SDK's own errors leaves it, whatever a caller gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pulse
from tests.rows import each_row

WRONG: list[Any] = [5, "\ud800", [], object(), {"a": object()}, float("nan"), timedelta.max, 2**70]
GIVEN = {"spec": pulse.After(timedelta(1)), "interval": timedelta(1), "expression": "@daily"}
VERBS: list[Callable[..., Any]] = [
    *(pulse.Pulse.enqueue, pulse.Pulse.enqueue_many, pulse.Pulse.schedule, pulse.Pulse.every),
    *(pulse.Pulse.cron, pulse.Pulse.get_job, pulse.Pulse.retry, pulse.Pulse.prioritize, pulse.Pulse.pause),
]


@each_row("verb", VERBS)
async def test_wrong_value_of_any_parameter_is_an_error_of_pulse(verb: Callable[..., Any]) -> None:
    """Values that are no mistake fail too: no server listens there."""
    parameters = [each for each in inspect.signature(verb).parameters.values() if each.name != "self"]
    needed = {each.name: GIVEN.get(each.name, "x") for each in parameters if each.default is each.empty}
    async with pulse.Pulse("127.0.0.1:1", timeout=timedelta(milliseconds=10)) as p:
        for parameter in parameters:
            for wrong in WRONG:
                given = {**needed, parameter.name: wrong}
                try:
                    result = verb(p, **given)
                    if inspect.isawaitable(result):
                        await result
                except pulse.PulseError:
                    continue
                except Exception as error:
                    raise AssertionError(f"{verb.__name__}({parameter.name}={wrong!r})") from error
