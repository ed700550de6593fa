"""Samples a server, its workers and its table every few seconds during a load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from benchmarks.bloat import Bloat, look
from benchmarks.crew import Crew
from benchmarks.figures import percentile
from benchmarks.meters import resident_megabytes
from benchmarks.processes import Server


@dataclass(frozen=True, slots=True)
class Sample:
    seconds: float
    """Since the last one."""
    server_megabytes: float
    worker_megabytes: float
    """Of the largest of them."""
    bloat: Bloat
    latencies: Sequence[float]
    """From submit to first start, in milliseconds, of the jobs that were started since the last sample."""


@dataclass(frozen=True, slots=True)
class Minute:
    """Some samples together: growing values from the last sample, other values over all samples."""

    rate: float
    p50: float
    p99: float
    server_megabytes: float
    worker_megabytes: float
    bloat: Bloat

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Minute:
        latencies = [latency for sample in samples for latency in sample.latencies] or [0.0]
        last = samples[-1]
        return cls(
            rate=sum(len(sample.latencies) for sample in samples) / sum(sample.seconds for sample in samples),
            p50=percentile(latencies, 0.50),
            p99=percentile(latencies, 0.99),
            server_megabytes=last.server_megabytes,
            worker_megabytes=last.worker_megabytes,
            bloat=last.bloat,
        )


class Vigil:
    def __init__(
        self, server: Server, crew: Crew, connection: asyncpg.Connection[asyncpg.Record], interval: float
    ) -> None:
        self._server = server
        self._crew = crew
        self._connection = connection
        self._interval = interval
        self._looked = time.monotonic()
        crew.news()

    async def minute(self, samples: int) -> Minute:
        """Take `samples` samples, one interval apart."""
        return Minute.of([await self._sample() for _ in range(samples)])

    async def _sample(self) -> Sample:
        await asyncio.sleep(max(0.0, self._looked + self._interval - time.monotonic()))
        now, started = time.monotonic(), self._crew.news()
        seconds, self._looked = now - self._looked, now
        return Sample(
            seconds,
            resident_megabytes([self._server.pid]),
            max(resident_megabytes([pid]) for pid in self._crew.pids),
            await look(self._connection),
            [(start - submitted) * 1000 for submitted, start in started],
        )
