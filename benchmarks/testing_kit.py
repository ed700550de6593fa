"""How long tests over `pulse.testing` take: milliseconds for a kit, the body of the test, and its end.

    python -m benchmarks.testing_kit

The application has 200 handlers: an application with many must not pay for each in every test.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from datetime import timedelta

import pulse
from pulse.testing import Kit

HANDLERS = 200
TESTS = 200

s = pulse.SyncPulse("localhost:1")
p = pulse.Pulse("localhost:1")


@s.job("plain")
def plain(n: int) -> int:
    return n


@p.job("async")
async def coroutine(n: int) -> int:
    return n


@p.job("order")
async def order(ctx: pulse.Context) -> int:
    await ctx.step("charge", lambda: 1)
    await ctx.sleep(timedelta(days=3))
    return 1


for number in range(HANDLERS):
    s.register(f"other-{number}", lambda: None)


def nothing(_kit: Kit) -> None: ...


def enqueue(kit: Kit) -> None:
    plain.enqueue(1)
    kit.one(plain, n=1)


def enqueue_and_run(kit: Kit) -> None:
    plain.enqueue(1)
    assert kit.drain() == {"completed": 1}


def enqueue_and_run_async(kit: Kit) -> None:
    s.enqueue("async", {"n": 1})
    assert kit.drain() == {"completed": 1}


def sleep_of_three_days(kit: Kit) -> None:
    s.enqueue("order")
    kit.drain()
    kit.advance(days=3)
    assert kit.drain() == {"completed": 1}


def two_hundred_jobs(kit: Kit) -> None:
    for n in range(200):
        plain.enqueue(n)
    assert kit.drain() == {"completed": 200}


BODIES: tuple[Callable[[Kit], None], ...] = (
    nothing,
    enqueue,
    enqueue_and_run,
    enqueue_and_run_async,
    sleep_of_three_days,
    two_hundred_jobs,
)


def main() -> None:
    """Print the median and the 95th percentile of each body."""
    logging.disable(logging.CRITICAL)
    print(f"{'':26}{'median':>9}{'95%':>9}   ms, with {HANDLERS} other handlers")
    for body in BODIES:
        took: list[float] = []
        for _ in range(TESTS if body is not two_hundred_jobs else 10):
            began = time.perf_counter()
            with Kit() as kit:
                body(kit)
            took.append((time.perf_counter() - began) * 1000)
        took.sort()
        print(f"{body.__name__:26}{statistics.median(took):9.2f}{took[int(len(took) * 0.95) - 1]:9.2f}")


if __name__ == "__main__":
    main()
