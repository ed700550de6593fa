"""A declaration that takes longer than a try: each try has more time, or no job would start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from pulse import tuning
from pulse.errors import PulseError, Unavailable
from pulse.handlers.handler import HandlerOptions
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.intake import LONGEST_TRY_SECONDS, declare_topics


class SlowServer:
    """Answers a declaration after so many seconds, if the try lasts that long."""

    stub = SimpleNamespace(DeclareTopics=None)

    def __init__(self, needs_seconds: float, tries: int) -> None:
        self._needs_seconds = needs_seconds
        self._most_tries = tries
        self.tries: list[float] = []

    async def try_once(self, _method: Any, _request: Any, seconds: float) -> pb.DeclareTopicsResponse:
        self.tries.append(seconds)
        if seconds >= self._needs_seconds or len(self.tries) >= self._most_tries:
            return pb.DeclareTopicsResponse()
        no_metadata = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, no_metadata, no_metadata)

    def translate(self, _error: grpc.aio.AioRpcError) -> PulseError:
        return Unavailable("The server did not answer in time.")


async def test_each_try_has_twice_the_time_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "RECONNECT_FIRST_SECONDS", 0.0)
    handlers = cast("Any", [SimpleNamespace(topic="mail", options=HandlerOptions())])
    slow = SlowServer(needs_seconds=18.0, tries=100)
    await declare_topics(cast("Any", slow), "w", handlers)
    assert slow.tries == [5.0, 10.0, 20.0]
    silent = SlowServer(needs_seconds=1000.0, tries=6)
    await declare_topics(cast("Any", silent), "w", handlers)
    assert silent.tries[-1] == LONGEST_TRY_SECONDS
