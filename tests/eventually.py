"""Waiting for what no signal tells of."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 50
_POLL_SECONDS = 0.01


async def eventually(
    condition: Callable[[], Any], what: str = "this came true", patience_seconds: float = PATIENCE_SECONDS
) -> Any:
    """Return what the condition answers as soon as that is true; fail with `what` if it never is."""
    deadline = time.monotonic() + patience_seconds
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"this did not happen within {patience_seconds} s: {what}"
        await asyncio.sleep(_POLL_SECONDS)
