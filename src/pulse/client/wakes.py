"""Wakes pulsed after a commit that has stored jobs: it looks for them at once."""

from __future__ import annotations

import asyncio
import contextlib

from pulse import tuning
from pulse.client.caller import Caller
from pulse.v1 import pulse_pb2 as pb


class Wakes:
    """Sends wake-ups for one client. Without them servers find the jobs a moment later.

    One wake-up is in flight at a time. Any number of requests during it add one more.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._is_asked = False
        self._sending: asyncio.Task[None] | None = None

    def send_soon(self) -> None:
        """Send a wake-up from the event loop that uses the client, or from the running one. Never raises."""
        with contextlib.suppress(RuntimeError):  # that loop is closed
            if (loop := self._caller.loop_of_calls()) is not None:
                loop.call_soon_threadsafe(self.send)

    def send(self) -> None:
        """Send a wake-up. Call it in the event loop of the client."""
        self._is_asked = True
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="pulse-wake")

    async def _send(self) -> None:
        while self._is_asked:
            self._is_asked = False
            with contextlib.suppress(Exception):
                connection = self._caller.session().connection
                request = pb.SubmitJobsRequest(wake=True)
                await connection.try_once(connection.stub.SubmitJobs, request, tuning.WAKE_TIMEOUT_SECONDS)
