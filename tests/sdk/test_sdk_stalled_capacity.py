"""A worker whose event loop stalled gets all its slots back, in whatever order its calls arrive."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.worker.held_jobs import Releases, Shared, Window
from tests.rows import each_row


class Server:
    """Has the capacity that was set last. A release arrives after the event loop has responded."""

    def __init__(self, window: Window, *, answers: bool) -> None:
        self.capacity = window.announce()
        self._window = window
        self._answers = answers
        self.is_called = threading.Event()
        self._loop = asyncio.get_running_loop()

    def announced(self) -> None:
        if size := self._window.changed_size():
            self.capacity = size
            self._window.acknowledged(size)

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        self.is_called.set()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result()
        self.capacity = request.capacity or self.capacity
        if not self._answers:
            raise grpc.RpcError
        return pb.ReleaseResponse()


@each_row("answers", [True, False])
async def test_capacity_that_a_release_has_lowered_too_late_is_sent_again(answers: bool) -> None:
    window = Window(4)
    server = Server(window, answers=answers)
    overdue: Any = SimpleNamespace(release_by=0.0, job_id="j", stop_reason="", has_begun=False, outcome=None)
    overdue.claim = lambda: pb.Claim(job_id="j", attempt=1, run=1)
    held: Any = SimpleNamespace(jobs={"j": overdue}, unstarted=[overdue], settled=lambda _: None)
    releases = Releases(Shared(cast(Any, None), "w", window, held=held), server.announced)
    heartbeats = threading.Thread(target=releases.send, args=[server.release])
    heartbeats.start()
    server.is_called.wait()  # the event loop is blocked until then
    await asyncio.to_thread(heartbeats.join)
    await asyncio.sleep(0)
    assert server.capacity == 4
