"""One peer on the stand: runs its program, and watches its workers through their recordings."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.environments import Installed
from benchmarks.peers.peer import Peer, PeerFailed, Shift
from benchmarks.peers.processes import Process, end, start, until
from benchmarks.peers.stores import Store
from benchmarks.recorder import Recording
from tools.environment import ROOT, child_environment

_PROGRAM_SECONDS = 300
_ASK_SECONDS = 0.002


class Watch:
    """The progress of a crew's workers, across all of their processes."""

    def __init__(self, folder: Path, log: Path, processes: Sequence[Process]) -> None:
        self._folder = folder
        self._log = log
        self._processes = processes
        self._recordings: dict[Path, Recording] = {}

    @property
    def hits(self) -> int:
        return sum(recording.count for recording in self._look())

    @property
    def connected(self) -> int:
        return sum(recording.is_connected for recording in self._look())

    @property
    def with_hits(self) -> int:
        """How many worker processes have run a job."""
        return sum(recording.count > 0 for recording in self._look())

    def pairs(self, since: float = 0.0) -> list[tuple[float, float]]:
        """Return when each job was submitted and started, for jobs submitted since then."""
        return [pair for recording in self._look() for pair in recording.pairs() if pair[0] >= since]

    def let_loose(self) -> None:
        """Have the workers take jobs. Until then they wait, so that none has a head start."""
        (self._folder / "go").touch()

    async def until(self, condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Return once the condition holds. PeerFailed, with that message, after a timeout."""
        if not await until(condition, seconds):
            raise self.failure(otherwise)

    def close(self) -> None:
        for recording in self._recordings.values():
            recording.close()

    def failure(self, what: str) -> PeerFailed:
        return PeerFailed(f"{what}; the last output of its workers: {_last_words(self._log)}")

    def _look(self) -> list[Recording]:
        for process in self._processes:
            if process.poll() is not None:
                raise self.failure(f"a worker ended with code {process.returncode}")
        for path in self._folder.glob("recording-*"):
            # Between its creation and its first growth a file cannot be mapped.
            if path not in self._recordings and path.stat().st_size:
                self._recordings[path] = Recording(path)
        return list(self._recordings.values())


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs a peer in its environment. The store's address travels as a variable: it may hold a password."""

    peer: Peer
    installed: Installed

    @property
    def versions(self) -> str:
        """The versions of the peer, its runtime and its store: the first and the last entries."""
        versions = list(self.installed.versions.items())
        last = 2 if self.peer.store == "redis" else 1
        return ", ".join(f"{name} {version}" for name, version in (versions[0], *versions[-last:]))

    def about(self, shift: Shift) -> str:
        return f"{self.versions}; {self.peer.crew(shift).settings}"

    async def run(self, store: Store, *arguments: object) -> float:
        """Run the peer's program to its end. Returns the number that it prints last, or 0."""
        process = await asyncio.create_subprocess_exec(
            self.installed.interpreter,
            *self.peer.program,
            *map(str, arguments),
            env=self._variables(store),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), _PROGRAM_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise PeerFailed(f"{arguments[0]} did not end within {_PROGRAM_SECONDS} s") from None
        if process.returncode:
            raise PeerFailed(f"{arguments[0]} failed: {errors.decode().strip()[-600:]}")
        return float((output.decode().split() or ["0"])[-1])

    @asynccontextmanager
    async def crew(self, store: Store, shift: Shift) -> AsyncIterator[Watch]:
        """The workers of a shift, from their start on: yields before any worker is ready."""
        crew = self.peer.crew(shift)
        with tempfile.TemporaryDirectory(prefix="pulse-bench-peer-") as name:
            folder, log = Path(name), Path(name) / "log"
            variables = {**self._variables(store), "PULSE_BENCH_RECORDINGS": name}
            processes: list[Process] = []
            watch = Watch(folder, log, processes)
            try:
                for arguments in crew.commands:
                    command: list[str | Path] = [self.installed.interpreter, *arguments]
                    processes.append(start(command, folder=folder, log=log, variables=variables))
                yield watch
            finally:
                await end(processes)
                watch.close()

    async def finish(self, store: Store, watch: Watch, jobs: int, seconds: float) -> bool:
        """Wait until `jobs` jobs were handled and none is unfinished. False: it took too long."""
        deadline = time.monotonic() + seconds
        # Ask the store only once all jobs have been handled: a query would disturb the measurement.
        if not await until(lambda: watch.hits >= jobs, seconds):
            return False
        while await store.count(self.peer.unfinished):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_ASK_SECONDS)
        return True

    def _variables(self, store: Store) -> dict[str, str]:
        return {
            **child_environment(),
            "PYTHONPATH": str(ROOT),
            "PULSE_BENCH_STORE": store.url,
            "PULSE_BENCH_MODULES": str(self.installed.folder),
        }


def _last_words(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-600:] or "nothing"
