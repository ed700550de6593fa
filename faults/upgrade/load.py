"""An application that submits while servers are replaced. It repeats refused calls under the same key."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pulse
from tests.eventually import eventually

_PAUSE_SECONDS = 0.02
_AFTER_REFUSAL_SECONDS = 0.2
_TIMEOUT = timedelta(seconds=60)
_PATIENCE_SECONDS = 300.0


class Application:
    """`acknowledged` has the job of each key; `refusals` counts the errors that the caller saw."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.acknowledged: dict[str, str] = {}
        self.refusals: Counter[str] = Counter()
        self.longest_seconds = 0.0
        self._keys = (f"live-{number}" for number in itertools.count())
        self._is_over = False

    async def submitted(self, more: int) -> None:
        """Return once that many more jobs were acknowledged."""
        goal = len(self.acknowledged) + more
        await eventually(
            lambda: len(self.acknowledged) >= goal, f"{more} more jobs are submitted", _PATIENCE_SECONDS
        )

    async def _submit(self, p: pulse.Pulse) -> None:
        while not self._is_over:
            key = next(self._keys)
            began = time.monotonic()
            self.acknowledged[key] = await self._submit_until_stored(p, key)
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _submit_until_stored(self, p: pulse.Pulse, key: str) -> str:
        while True:
            try:
                return (await p.enqueue("served", {}, key=key, timeout=_TIMEOUT)).id
            except pulse.PulseError as error:
                self.refusals[error.code] += 1
                await asyncio.sleep(_AFTER_REFUSAL_SECONDS)


@asynccontextmanager
async def application_at(addresses: Sequence[str]) -> AsyncIterator[Application]:
    """Submit at each address for the length of a block. Returns once every call is answered."""
    application = Application(addresses)
    clients = [pulse.Pulse(address) for address in addresses]
    tasks = [asyncio.create_task(application._submit(client)) for client in clients for _ in range(3)]
    try:
        yield application
        application._is_over = True
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()
