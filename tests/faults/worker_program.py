"""A worker of the run, as a process of its own: `python -m tests.faults.worker_program '{…}'`.

What becomes of a job stands in its arguments. Handlers of both kinds write down that they were started before
they do anything else, and how they ended.
"""

import asyncio
import json
import logging
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulse
from tests.faults.history import COMPLETED, History

# The handlers of the last are ordinary functions, which run in threads.
TOPICS = ("mail", "report", "tick", "thumbnail")
_SYNC_TOPICS = frozenset({"thumbnail"})
_RETRY_SOON = timedelta(milliseconds=50)
# A flaky job fails at some of its first attempts: it must not run out of them.
_FLAKY_ATTEMPTS = 3
_POLL_SECONDS = 0.01


@dataclass
class Errand:
    """What a handler is asked to do. The key is first: the audit finds it there."""

    key: str = ""
    expect: str = "complete"
    seconds: float = 0.0
    ballast: str = ""


def failure(errand: Errand, ctx: pulse.Context) -> Exception | None:
    """What this attempt ends with, after its work; None if it ends well."""
    is_first = ctx.attempt == 1
    match errand.expect:
        case "fail":
            return RuntimeError("every attempt fails")
        case "discard":
            return pulse.Discard("nobody wants this")
        case "fail_once" if is_first:
            return RuntimeError("the first attempt fails")
        case "retry_once" if is_first:
            return pulse.Retry(_RETRY_SOON, "not yet")
        case "flaky" if ctx.attempt <= _FLAKY_ATTEMPTS and _toss(ctx):
            return RuntimeError("this attempt fails")
    return None


def _toss(ctx: pulse.Context) -> bool:
    return bool(zlib.crc32(f"{ctx.job_id} {ctx.attempt}".encode()) & 1)


class Handlers:
    """The handlers of one worker, which write what they do to its history."""

    def __init__(self, history: History, worker_id: str) -> None:
        self._history = history
        self._worker_id = worker_id

    def handler_of(self, topic: str) -> Callable[..., Any]:
        return self.work_in_thread if topic in _SYNC_TOPICS else self.work

    async def work(self, errand: Errand, ctx: pulse.Context) -> None:
        self._started(ctx)
        try:
            if errand.expect == "block":
                # The whole event loop stands still, as under a careless handler.
                time.sleep(errand.seconds)  # noqa: ASYNC251
            else:
                await asyncio.sleep(errand.seconds)
        except asyncio.CancelledError:
            self._ended(ctx, "cancelled")
            raise
        self._end(errand, ctx)

    def work_in_thread(self, errand: Errand, ctx: pulse.Context) -> None:
        self._started(ctx)
        end = time.monotonic() + errand.seconds
        while (left := end - time.monotonic()) > 0:
            if ctx.cancelled:
                self._ended(ctx, "cancelled")
                ctx.raise_if_cancelled()
            time.sleep(min(left, _POLL_SECONDS))
        self._end(errand, ctx)

    def _started(self, ctx: pulse.Context) -> None:
        self._history.write(
            "started", job_id=ctx.job_id, attempt=ctx.attempt, worker=self._worker_id, topic=ctx.topic
        )

    def _end(self, errand: Errand, ctx: pulse.Context) -> None:
        error = failure(errand, ctx)
        self._ended(ctx, COMPLETED if error is None else type(error).__name__)
        if error is not None:
            raise error

    def _ended(self, ctx: pulse.Context, outcome: str) -> None:
        self._history.write(
            "ended", job_id=ctx.job_id, attempt=ctx.attempt, worker=self._worker_id, outcome=outcome
        )


async def main(
    name: str, worker_id: str, address: str, history: str, concurrency: int, drain_seconds: float
) -> None:
    p = pulse.Pulse(
        address,
        concurrency=concurrency,
        worker_id=worker_id,
        drain_timeout=timedelta(seconds=drain_seconds),
    )
    handlers = Handlers(History(Path(history), name), worker_id)
    for topic in TOPICS:
        p.register(topic, handlers.handler_of(topic))
    async with p:
        await p.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(**json.loads(sys.argv[1])))
