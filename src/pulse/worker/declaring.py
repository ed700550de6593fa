"""What a worker declares when it connects: the schedules and the policies of its code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from pulse import tuning
from pulse.supervision.lifeline import Lifeline, Unsupervised
from pulse.wire.connection import Connection
from pulse.worker.policy_declaration import PolicyDeclarations


class Declaring:
    """Declares schedules and policies, and reports to the supervisor how far the process is."""

    def __init__(
        self,
        connection: Connection,
        schedules: Callable[[Connection], Coroutine[Any, Any, None]],
        policies: PolicyDeclarations,
        lifeline: Lifeline | Unsupervised,
    ) -> None:
        """`schedules` declares those of the application."""
        self._connection = connection
        self._schedules = schedules
        self._policies = policies
        self._lifeline = lifeline
        self.welcomed = asyncio.Event()
        """Set once a server has accepted the worker."""

    async def run(self) -> None:
        """Declare all. Raises a PulseError if the server refuses something."""
        # Schedules first: code that the server refuses leaves the policies of the code before it alone. A
        # server that does not answer must not keep handlers with limits from their first job.
        is_declared = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tuning.DECLARE_SECONDS):
                await self._schedules(self._connection)
                is_declared = True
        # What a worker declares counts once it is connected.
        await self.welcomed.wait()
        await self._policies.declare()
        if not is_declared:
            await self._schedules(self._connection)

    async def announce(self, declaring: asyncio.Task[None]) -> None:
        """Report that the process is connected, and ready once what it declares was accepted."""
        await self.welcomed.wait()
        self._lifeline.connected()
        await asyncio.wait({declaring})
        if declaring.exception() is None:
            self._lifeline.ready()
