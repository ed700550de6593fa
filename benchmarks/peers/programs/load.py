"""The producers' jobs and pace, and the commands that a peer's program understands."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Payload = dict[str, Any]
Run = Callable[[Coroutine[Any, Any, float]], float]


def store_url() -> str:
    return os.environ["PULSE_BENCH_STORE"]


def warm_up_payload() -> Payload:
    """A caller's first job: it makes the connection and the statements before the clock starts.

    Its time, 0, distinguishes it from measured jobs.
    """
    return {**payload(0), "t": 0.0}


def payload(number: int) -> Payload:
    """About fifty bytes of JSON that carry the moment of submission."""
    return {"i": number, "t": time.time(), "p": "x" * 16}


async def produce(
    count: int, producers: int, gap: float, submit: Callable[[Payload], Awaitable[object]]
) -> float:
    """Submit that many jobs, each producer awaiting one at a time. Returns the seconds it took.

    With a gap, each producer starts its jobs that many seconds apart. Before, each submits one as a warm-up.
    """
    numbers = iter(range(count))

    async def run() -> None:
        begin = time.time()
        for turn, number in enumerate(numbers):
            if gap:
                await asyncio.sleep(max(0.0, begin + turn * gap - time.time()))
            await submit(payload(number))

    await asyncio.gather(*(submit(warm_up_payload()) for _ in range(producers)))
    started = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(producers)))
    return time.perf_counter() - started


def produce_in_threads(count: int, producers: int, gap: float, submit: Callable[[Payload], object]) -> float:
    """Do the same for a client that blocks: each producer is a thread."""
    numbers = iter(range(count))
    lock = threading.Lock()

    def run() -> None:
        begin, turn = time.time(), 0
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            if gap:
                time.sleep(max(0.0, begin + turn * gap - time.time()))
                turn += 1
            submit(payload(number))

    _run_in_threads(producers, lambda: submit(warm_up_payload()))
    started = time.perf_counter()
    _run_in_threads(producers, run)
    return time.perf_counter() - started


def _run_in_threads(count: int, target: Callable[[], object]) -> None:
    threads = [threading.Thread(target=target) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def bulk(count: int, size: int, submit: Callable[[list[Payload]], Awaitable[object]]) -> float:
    """Submit that many jobs in batches, one after another. Returns the seconds it took.

    Before, a batch of one is submitted as a warm-up.
    """
    numbers = range(count)
    batches = [[payload(number) for number in numbers[start : start + size]] for start in numbers[::size]]
    await submit([warm_up_payload()])
    started = time.perf_counter()
    for batch in batches:
        await submit(batch)
    return time.perf_counter() - started


def obey(
    run: Run,
    *,
    install: Callable[[], Coroutine[Any, Any, float]],
    produce: Callable[[int, int, float], Coroutine[Any, Any, float]],
    bulk: Callable[[int, int], Coroutine[Any, Any, float]] | None = None,
    work: Callable[..., Coroutine[Any, Any, float]] | None = None,
) -> None:
    """Run the command line's command on the given event loop, and print the seconds it took."""
    match sys.argv[1:]:
        case ["install"]:
            print(run(install()))
        case ["produce", count, producers, gap]:
            print(run(produce(int(count), int(producers), float(gap))))
        case ["bulk", count, size] if bulk:
            print(run(bulk(int(count), int(size))))
        case ["work", slots, connections, *limits] if work:
            run(work(int(slots), int(connections), *map(int, limits)))
        case unknown:
            sys.exit(f"this program does not understand {unknown}")
