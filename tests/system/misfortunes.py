"""Things that happen to processes, drawn at random: they are killed, frozen, stopped and started again."""

import asyncio
import signal
import time
from dataclasses import dataclass
from random import Random

from tests.system.stage import Process, Pulsed, Stage, Worker, eventually

# Leases that lapse within a freeze, and a second for the backoff: the job is done elsewhere before it ends.
HASTY = {
    "PULSE_LEASE_TTL": "1s",
    "PULSE_HEARTBEAT_INTERVAL": "250ms",
    "PULSE_WATCHDOG_INTERVAL": "200ms",
}
_FREEZE_SECONDS = (0.2, 4.5)
_PAUSE_SECONDS = (0.4, 2.0)


@dataclass(frozen=True)
class Freeze:
    """When a process stood still, by the clock that the journal is written with."""

    pid: int
    begin: float
    end: float


class Misfortunes:
    """Befall replicas and workers until the time is up; then everything runs again.

    The seed decides what happens to whom and in which order; how that meets what the processes do at the
    moment is up to them.
    """

    def __init__(self, stage: Stage, seed: int, seconds: float) -> None:
        self.freezes: list[Freeze] = []
        self.told: list[str] = []
        self._stage = stage
        self._seed = seed
        self._end = time.monotonic() + seconds

    async def befall_replica(self, address: str) -> None:
        """Trouble one replica; it always comes back to its address."""
        random = Random(f"{self._seed} {address}")
        server = await self._stage.pulsed(address, **HASTY)
        while await self._pause(random):
            what = random.choice(["kill", "stop", "freeze"])
            if await self._befall(what, server, random):
                server = await self._stage.pulsed(address, **HASTY)

    async def befall_worker(self, number: int, addresses: list[str], topics: list[str]) -> None:
        """Trouble one worker; whenever it is gone, another takes its place, at any of the replicas."""
        random = Random(f"{self._seed} {number}")

        async def start() -> Worker:
            concurrency = random.choice([1, 2, 5])
            worker = self._stage.start_worker(random.choice(addresses), *topics, concurrency=concurrency)
            # Before it has looked for its server it does not handle signals yet.
            await eventually(lambda: "pulsed at" in worker.log, f"{worker.name} runs")
            return worker

        worker = await start()
        while await self._pause(random):
            what = random.choice(["kill", "stop", "freeze"])
            if await self._befall(what, worker, random):
                worker = await start()

    async def _befall(self, what: str, process: Pulsed | Worker, random: Random) -> bool:
        """Do it, and return whether the process is gone."""
        self.told.append(f"{time.time():.3f} {what} {process.name}")
        if what == "freeze":
            await self._freeze(process, random.uniform(*_FREEZE_SECONDS))
            return False
        if what == "kill":
            process.kill()
        else:
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0, process.log
        return True

    async def _freeze(self, process: Process, seconds: float) -> None:
        process.signal(signal.SIGSTOP)
        begin = time.time()
        await asyncio.sleep(seconds)
        self.freezes.append(Freeze(process.pid, begin, time.time()))
        process.signal(signal.SIGCONT)

    async def _pause(self, random: Random) -> bool:
        """Wait a little, and return whether there is time for more."""
        await asyncio.sleep(random.uniform(*_PAUSE_SECONDS))
        return time.monotonic() < self._end
