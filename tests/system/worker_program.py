"""The worker that the tests run as a process of its own: `python -m tests.system.worker_program '{…}'`.

Each handler appends what it does to a journal before it does anything else. A line is one write to a file
opened for appending, so a line is there in whole or not at all, whatever kills the process.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulse

POLL_SECONDS = 0.005
THREADS_THAT_MEET = 4


@dataclass
class Errand:
    """The arguments of a handler."""

    name: str = ""
    seconds: float = 0.0
    gate: str = ""


class Journal:
    """What the handlers of one process did, and when."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, ctx: pulse.Context, **facts: Any) -> None:
        # time.time() is read here, before the write: it is never later than the execution itself.
        line = {
            "event": event,
            "at": time.time(),
            "job_id": ctx.job_id,
            "attempt": ctx.attempt,
            "topic": ctx.topic,
            "pid": os.getpid(),
            **facts,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


def make_handlers(journal: Journal) -> dict[str, Callable[..., Any]]:
    """Return the handlers by name."""
    meeting = threading.Barrier(THREADS_THAT_MEET)

    async def work(errand: Errand, ctx: pulse.Context) -> None:
        """Sleep, then succeed."""
        journal.write("start", ctx, name=errand.name)
        await asyncio.sleep(errand.seconds)

    def sync_work(errand: Errand, ctx: pulse.Context) -> None:
        """Sleep in a thread, then succeed."""
        journal.write("start", ctx, name=errand.name, thread=threading.current_thread().name)
        time.sleep(errand.seconds)

    def meet(ctx: pulse.Context) -> None:
        """End only if several of these run at the same time."""
        journal.write("start", ctx)
        meeting.wait(20)

    async def describe(name: str, *, ctx: pulse.Context, times: int = 1) -> None:
        """Record everything that a handler can know."""
        journal.write(
            "start",
            ctx,
            name=name,
            times=times,
            max_attempts=ctx.max_attempts,
            priority=ctx.priority,
            metadata=dict(ctx.metadata),
            key=ctx.idempotency_key,
        )

    async def gated(errand: Errand, ctx: pulse.Context) -> None:
        """Run until the test opens the gate."""
        journal.write("start", ctx, name=errand.name)
        await opened(Path(errand.gate))
        journal.write("end", ctx)

    async def block(errand: Errand, ctx: pulse.Context) -> None:
        """Block the event loop, as a careless handler does."""
        journal.write("start", ctx)
        time.sleep(errand.seconds)  # noqa: ASYNC251
        journal.write("end", ctx)

    async def patient(errand: Errand, ctx: pulse.Context) -> None:
        """Run for ever on the first attempt; end at once on another."""
        journal.write("start", ctx, name=errand.name)
        try:
            if ctx.attempt == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            journal.write("cancelled", ctx)
            raise

    def patient_thread(ctx: pulse.Context) -> None:
        """Run in a thread until it is interrupted."""
        journal.write("start", ctx)
        try:
            while True:
                time.sleep(POLL_SECONDS)
        except pulse.Cancelled:
            journal.write("cancelled", ctx)
            raise

    async def fail_once(ctx: pulse.Context) -> None:
        journal.write("start", ctx)
        if ctx.attempt == 1:
            raise RuntimeError("the first attempt fails")

    async def broken(ctx: pulse.Context) -> None:
        """Fail on every attempt, as after a bad deploy."""
        journal.write("start", ctx)
        raise RuntimeError("the new version cannot read its orders")

    async def retry_soon(ctx: pulse.Context) -> None:
        journal.write("start", ctx)
        if ctx.attempt == 1:
            raise pulse.Retry(timedelta(milliseconds=50), "not yet")

    async def discard(ctx: pulse.Context) -> None:
        journal.write("start", ctx)
        raise pulse.Discard("discarded by the test")

    async def die(ctx: pulse.Context) -> None:
        """Kill the whole process."""
        journal.write("start", ctx)
        os._exit(70)

    return {
        "work": work,
        "sync-work": sync_work,
        "meet": meet,
        "describe": describe,
        "gated": gated,
        "block": block,
        "patient": patient,
        "patient-thread": patient_thread,
        "fail-once": fail_once,
        "broken": broken,
        "retry-soon": retry_soon,
        "discard": discard,
        "die": die,
    }


_gates: dict[Path, asyncio.Task[None]] = {}


async def opened(gate: Path) -> None:
    """Return once the file exists: the test, another process, creates it."""
    # One task polls for all that wait: a few hundred would keep the process busy.
    if gate not in _gates:
        _gates[gate] = asyncio.create_task(_appears(gate))
    await asyncio.shield(_gates[gate])


async def _appears(gate: Path) -> None:
    while not gate.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(POLL_SECONDS)


async def main(address: str, journal: str, topics: list[str], concurrency: int, worker_id: str) -> None:
    p = pulse.Pulse(address, concurrency=concurrency, worker_id=worker_id)
    handlers = make_handlers(Journal(journal))
    for topic in topics:
        # A topic may be an alias for one of the handlers: "mail=work".
        name, _, handler = topic.partition("=")
        p.register(name, handlers[handler or name])
    async with p:
        await p.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(**json.loads(sys.argv[1])))
