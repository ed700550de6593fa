"""Settings of topics without a database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from pulse_server.topics.rules import Runs
from pulse_server.topics.service import TopicRules


class FakeSettings:
    """The rules that a test has put into `rules`."""

    def __init__(self) -> None:
        self.rules: Mapping[str, Runs] = {}

    async def read_rules(self) -> Mapping[str, Runs]:
        return self.rules


def no_rules(**server: timedelta) -> TopicRules:
    """The copy of a server that knows no settings but its own."""
    return TopicRules(cast(Any, FakeSettings()), {"max_attempts": 25, "max_crashes": 5, **server})
