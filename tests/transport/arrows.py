"""The arrows of docs/job-lifecycle.md, each with what leads along it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import StreamingWorker

Stage = Callable[[ServerUnderTest, StreamingWorker], Awaitable[Any]]
STAGED: dict[tuple[str, str, str], Stage] = {}


def arrow(before: str, after: str, section: str) -> Callable[[Stage], Stage]:
    """Stage what leads along this arrow. Its last transition is the arrow's own."""

    def register(stage: Stage) -> Stage:
        STAGED[before, after, section] = stage
        return stage

    return register
