"""How functions become handlers: by a decorator, or by a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from pulse.client.job_decorator import Job, JobDecorator
from pulse.errors import InvalidHandler
from pulse.handlers.options import HandlerOptions, JobOptions, make_options


class Registering:
    """What a `Pulse` and a `Router` have in common."""

    def job(self, topic: str, /, **options: Unpack[JobOptions]) -> JobDecorator:
        """Register the decorated function as the handler of a topic. It becomes a `Job` that can enqueue.

        The options say how its jobs are retried, how long they may run, and where: see docs/handlers.md.
        """
        check_is_topic(topic)
        checked = make_options(options)
        return JobDecorator(
            lambda function: self._register(topic, function, sys._getframe(2).f_locals, checked)
        )

    def register(
        self, topic: str, function: Callable[..., Any], /, **options: Unpack[JobOptions]
    ) -> Job[..., ..., Any]:
        """Register a function as the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals, make_options(options))

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> Job[..., ..., Any]:
        raise NotImplementedError


def check_is_topic(topic: object) -> None:
    """Raise InvalidHandler for `@p.job` without its parentheses."""
    if not isinstance(topic, str):
        raise InvalidHandler('@p.job needs a topic: write @p.job("send-email").')
