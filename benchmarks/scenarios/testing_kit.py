"""What a test over `pulse.testing` takes: a kit, the body of the test, and the end of the kit.

The application has 200 other handlers: one with many must not pay for each in every test. The first kit
of a process also makes its Postgres, or its database on the server of TEST_DB_URL.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pulse
from benchmarks.figures import Figure
from benchmarks.stand import Stand
from pulse.testing import Kit

HANDLERS = 200
TESTS = 200
JOBS = 200
_FIRST = """
import time
began = time.perf_counter()
import pulse.testing
with pulse.testing.Kit():
    print(time.perf_counter() - began)
"""


class Application:
    """Its client is made for the measurement: a client counts as one of the process that imports it."""

    def __init__(self) -> None:
        self.client = s = pulse.SyncPulse("localhost:1")
        self.plain = s.job("plain")(lambda n: n)
        self.order = s.job("order")(_order)
        for number in range(HANDLERS):
            s.register(f"other-{number}", lambda: None)

    def nothing(self, _kit: Kit) -> None: ...

    def enqueue_and_run(self, kit: Kit) -> None:
        self.plain.enqueue(1)
        assert kit.drain() == {"completed": 1}

    def sleep_of_three_days(self, kit: Kit) -> None:
        self.order.enqueue()
        kit.drain()
        kit.advance(days=3)
        assert kit.drain() == {"completed": 1}

    def many_jobs(self, kit: Kit) -> None:
        for n in range(JOBS):
            self.plain.enqueue(n)
        assert kit.drain() == {"completed": JOBS}


def _order(ctx: pulse.SyncContext) -> int:
    ctx.step("charge", lambda: 1)
    ctx.sleep(timedelta(days=3))
    return 1


async def measure(stand: Stand) -> list[Figure]:
    return await asyncio.to_thread(_measure, stand)


def _measure(stand: Stand) -> list[Figure]:
    tests = TESTS // 20 if stand.is_trial else TESTS
    app = Application()
    bodies: dict[str, tuple[Callable[[Kit], None], int]] = {
        "a test without jobs": (app.nothing, tests),
        "enqueue and run one job": (app.enqueue_and_run, tests),
        "a step and a sleep of three days": (app.sleep_of_three_days, tests),
        f"{JOBS} jobs in one test": (app.many_jobs, max(1, tests // 40)),
    }
    figures = [
        Figure(
            "testing-kit",
            name,
            "ms",
            [_median(app, body, count) for _ in range(stand.repeats)],
            f"median of {count}",
        )
        for name, (body, count) in bodies.items()
    ]
    first = [_first() for _ in range(stand.repeats)]
    return [*figures, Figure("testing-kit", "the first kit of a process", "ms", first, "with its imports")]


def _median(app: Application, body: Callable[[Kit], None], count: int) -> float:
    took = []
    for _ in range(count + 1):
        began = time.perf_counter()
        with Kit(app.client) as kit:
            body(kit)
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took[1:])  # the first one starts a Postgres


def _first() -> float:
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=True, cwd=root)
    return float(ran.stdout) * 1000
