"""Worker processes that start together, and their recordings."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import end, until
from benchmarks.recorder import Recording

WORKER = "benchmarks.worker"
# A process that died is noticed instead of waited for.
_STUCK_SECONDS = 180


@dataclass(frozen=True, slots=True)
class CrewMember:
    process: subprocess.Popen[bytes]
    recording: Recording

    @classmethod
    def start(
        cls,
        recording: Recording,
        address: str,
        concurrency: int,
        topics: Sequence[str],
        environment: Mapping[str, str],
        program: str,
        python: str | Path,
    ) -> CrewMember:
        """Start a worker process. It imports its modules, reports that, and waits."""
        arguments = [address, str(concurrency), str(recording.path), *topics]
        process = subprocess.Popen(
            [python, "-m", program, *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return cls(process, recording)

    async def end(self) -> None:
        """Stop the process and throw its recording away."""
        await end(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.recording.close()


class Crew:
    """All workers of a run. None asks for a job before `let_loose`: a fast start must not be a head start."""

    def __init__(self, members: Sequence[CrewMember]) -> None:
        self._members = members
        self._seen = [0] * len(members)

    @property
    def pids(self) -> list[int]:
        return [member.process.pid for member in self._members]

    @property
    def count(self) -> int:
        """How many jobs were started so far."""
        return sum(member.recording.count for member in self._members)

    def pairs(self) -> list[tuple[float, float]]:
        """When each job was submitted and started, worker by worker."""
        return [pair for member in self._members for pair in member.recording.pairs()]

    def news(self) -> list[tuple[float, float]]:
        """Return the pairs that came since this was last called."""
        found = [
            pair
            for member, seen in zip(self._members, self._seen, strict=True)
            for pair in member.recording.pairs(seen)
        ]
        self._seen = [member.recording.count for member in self._members]
        return found

    async def is_prepared(self) -> None:
        """Return once every process has imported its modules."""
        for member in self._members:
            assert member.process.stdout is not None
            if not await asyncio.to_thread(member.process.stdout.readline):
                raise RuntimeError("a worker process ended before it was ready")

    def let_loose(self) -> None:
        """Have every worker connect and take jobs."""
        for member in self._members:
            assert member.process.stdin is not None
            member.process.stdin.write(b"go\n")
            member.process.stdin.flush()

    async def is_connected(self) -> None:
        """Return once every worker has its stream."""
        await until(lambda: all(member.recording.is_connected for member in self._members))

    async def has_started(self, jobs: int) -> None:
        """Return once that many jobs were started. RuntimeError if a worker ends before."""

        def is_far_enough() -> bool:
            if any(member.process.poll() is not None for member in self._members):
                raise RuntimeError("a worker process ended while it was measured")
            return self.count >= jobs

        await until(is_far_enough, _STUCK_SECONDS)
