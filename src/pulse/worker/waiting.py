"""A wait that an event cuts short."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def wait_unless(event: asyncio.Event, work: Coroutine[Any, Any, Any], timeout_seconds: float) -> None:
    """Wait for the work to end, for the timeout, or for the event."""
    waited = asyncio.ensure_future(work)
    cut_short = asyncio.ensure_future(event.wait())
    await asyncio.wait({waited, cut_short}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    waited.cancel()
    cut_short.cancel()
