"""A private redis-server on loopback without persistence, and a minimal client of it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.peers.environments import LeftOut
from benchmarks.peers.peer import PeerFailed
from benchmarks.peers.processes import end, start

_HOST = "127.0.0.1"
_SNAPSHOT = "dump.rdb"
_START_SECONDS = 20


class RedisStore:
    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"redis://{_HOST}:{port}/0"
        self._port = port
        self._folder = folder

    async def count(self, question: str) -> int:
        reply = await self._ask("EVAL", question, "0")
        return int(reply.removeprefix(":"))

    async def settle(self) -> None:
        """Redis has nothing to tidy up."""

    async def snapshot(self) -> Path:
        """Write the server's data to a file that another server can start from."""
        await self._ask("SAVE")
        return self._folder / _SNAPSHOT

    async def is_up(self) -> bool:
        try:
            return await self._ask("PING") == "+PONG"
        except (OSError, PeerFailed):  # not listening yet, or still loading
            return False

    async def _ask(self, *words: str) -> str:
        reader, writer = await asyncio.open_connection(_HOST, self._port)
        try:
            encoded = [word.encode() for word in words]
            parts = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)]
            writer.write(b"".join(parts))
            reply = (await reader.readline()).decode().strip()
        finally:
            writer.close()
        if reply.startswith("-"):
            raise PeerFailed(f"Redis refused {words[0]}: {reply[1:]}")
        return reply


def require_redis() -> str:
    """Return the version of redis-server, or raise how to get one."""
    if not shutil.which("redis-server"):
        raise LeftOut(
            "redis-server is not on the PATH (apt-get install redis-server, or brew install redis, brings it)"
        )
    printed = subprocess.run(
        ["redis-server", "--version"], capture_output=True, text=True, check=False
    ).stdout
    return next((word[2:] for word in printed.split() if word.startswith("v=")), "of unknown version")


@asynccontextmanager
async def redis_store(template: RedisStore | None) -> AsyncIterator[RedisStore]:
    with tempfile.TemporaryDirectory(prefix="pulse-bench-redis-") as name:
        folder = Path(name)
        if template:
            shutil.copy(await template.snapshot(), folder / _SNAPSHOT)
        port = _free_port()
        settings = {"bind": _HOST, "port": str(port), "save": "", "appendonly": "no", "dir": name}
        options = [word for option, value in settings.items() for word in (f"--{option}", value)]
        log = folder / "log"
        process = start(["redis-server", *options], folder=folder, log=log)
        store = RedisStore(port, folder)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not await store.is_up():
                if time.monotonic() > deadline:
                    raise PeerFailed(f"redis-server did not start: {log.read_text()[-500:]}")
                await asyncio.sleep(0.01)
            yield store
        finally:
            await end([process])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return int(listener.getsockname()[1])
