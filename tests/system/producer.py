"""An application that enqueues all the time, whatever happens to the servers."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pulse
from tests.eventually import eventually
from tests.system.worker_program import Errand

# Longer than any outage that a test makes: the SDK retries an enqueue through it, not the test.
_TIMEOUT = timedelta(seconds=40)


class Producer:
    """Tasks that enqueue one job after the other. `handles` are the jobs that were acknowledged."""

    def __init__(
        self, choose: Callable[[int], tuple[str, Errand]], max_attempts: int, timeout: timedelta = _TIMEOUT
    ) -> None:
        self.handles: list[pulse.JobHandle] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._choose = choose
        self._max_attempts = max_attempts
        self._timeout = timeout
        self._numbers = itertools.count()
        self.is_over = False

    async def acknowledged(self, more: int) -> None:
        """Return once that many more jobs were acknowledged."""
        goal = len(self.handles) + more

        def are_there() -> bool:
            for task in self.tasks:
                if task.done():
                    task.result()  # raises what the enqueue raised
            return len(self.handles) >= goal

        await eventually(are_there, f"{more} more jobs are enqueued")

    def stop(self) -> None:
        """Stop enqueueing."""
        self.is_over = True

    async def enqueue_on_and_on(self, p: pulse.Pulse, pause_seconds: float) -> None:
        """Enqueue until stopped. No enqueue may fail."""
        while not self.is_over:
            number = next(self._numbers)
            topic, errand = self._choose(number)
            # With a key: a repeat after a lost answer must neither insert twice nor look like a duplicate.
            handle = await p.enqueue(
                topic, errand, max_attempts=self._max_attempts, key=str(number), timeout=self._timeout
            )
            assert not handle.duplicate
            self.handles.append(handle)
            await asyncio.sleep(pause_seconds)


def quick_work(number: int) -> tuple[str, Errand]:
    """Draw a job: mostly a short handler of either kind, now and then a longer one."""
    return ("sync-work" if number % 4 == 0 else "work"), Errand(
        str(number), seconds=0.2 if number % 10 == 0 else 0.01
    )


@asynccontextmanager
async def producing(
    *addresses: str,
    choose: Callable[[int], tuple[str, Errand]] = quick_work,
    max_attempts: int = 5,
    pause_seconds: float = 0.02,
    timeout: timedelta = _TIMEOUT,
) -> AsyncIterator[Producer]:
    """Enqueue for the length of a block, at each address. Returns once every call is answered."""
    clients = [pulse.Pulse(address) for address in addresses]
    producer = Producer(choose, max_attempts, timeout)
    tasks = producer.tasks = [
        asyncio.create_task(producer.enqueue_on_and_on(client, pause_seconds))
        for client in clients
        for _ in range(3)
    ]
    try:
        yield producer
        producer.stop()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()
