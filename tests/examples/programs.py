"""Runs the programs of examples/ as a reader would: as processes, from the root of the repository."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 90


@dataclass
class Program:
    """A running program. What it prints, errors included, is kept line by line."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        """What it has printed so far, as far as it was read."""
        return "".join(self.lines)

    async def says(self, words: str) -> None:
        """Read on until it prints a line with these words."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line)
                if words in line:
                    return
        raise AssertionError(f"it ended without saying {words!r}:\n{self.output}")

    async def ends(self) -> int:
        """Read what it still prints, and return its exit code."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            self.lines.append((await self.process.stdout.read()).decode())
            return await self.process.wait()


@asynccontextmanager
async def program(*arguments: str, **environment: str) -> AsyncIterator[Program]:
    """Start Python with these arguments for the length of a block; a program that still runs is killed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DB_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env=inherited | {"PYTHONPATH": str(ROOT / "src")} | environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
