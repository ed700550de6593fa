"""The channel of the heartbeats is made in their thread and closed by the event loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pulse.errors import ClientClosed
from pulse.wire.endpoint import make_endpoint
from pulse.worker import leases
from pulse.worker.held_jobs import Shared, Window


class Channel:
    """Notes when it is closed."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def close(self) -> None:
        self._events.append("closed")


SERVER = make_endpoint("localhost:1", None, None)


def heartbeats_over(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> leases.Heartbeats:
    monkeypatch.setattr(leases, "open_blocking_channel", lambda _: channel)
    nothing: Any = None
    connection: Any = SimpleNamespace(endpoint=SERVER, servers=SimpleNamespace(in_use=SERVER))
    return leases.Heartbeats(Shared(connection, "w1", Window(1)), nothing, nothing, stuck=lambda: None)


async def test_channel_is_not_closed_while_the_methods_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC would crash the process."""
    events: list[str] = []
    begins, may_end = threading.Event(), threading.Event()

    def make_methods(channel: Channel) -> str:
        begins.set()
        may_end.wait(0.2)  # the close would come in between
        events.append("made")
        return "methods"

    monkeypatch.setattr(leases, "PulseServiceStub", make_methods)
    beats = heartbeats_over(Channel(events), monkeypatch)
    making = asyncio.create_task(asyncio.to_thread(beats._stub, SERVER))
    await asyncio.to_thread(begins.wait)
    await asyncio.to_thread(beats.stop)
    await making
    assert events == ["made", "closed"]


async def test_channel_is_not_opened_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    beats = heartbeats_over(Channel([]), monkeypatch)
    beats.stop()
    with pytest.raises(ClientClosed):
        beats._stub(SERVER)
