"""Polls for a condition that has no signal."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

# Below the minute after which a server of a test looks for jobs by itself, which would hide the loss of a
# notification.
PATIENCE_SECONDS = 50
# For what a server also looks for every 30 s.
PROMPT_SECONDS = 25
_POLL_SECONDS = 0.01


async def eventually(
    condition: Callable[[], Any],
    what: str = "the condition holds",
    patience_seconds: float = PATIENCE_SECONDS,
) -> Any:
    """Return the value of the condition once it is true; fail with `what` if it never is."""
    deadline = time.monotonic() + patience_seconds
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"this did not happen within {patience_seconds} s: {what}"
        await asyncio.sleep(_POLL_SECONDS)
