"""A Postgres on small disks, which a test fills and frees."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from faults.bad_days.small_disk_host import CANNOT_MOUNT


class NoSmallDisk(Exception):
    """A small disk cannot be mounted on this machine. The text states why."""


class SmallDiskPostgres:
    """Serves when the constructor returns. The tables are on the disk `base`, the log is on `pg_wal`."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "postgres.log"
        self._host = subprocess.Popen(
            [sys.executable, "-m", "faults.bad_days.small_disk_host", str(directory)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.dsn = self._answer()
        if self.dsn.startswith(CANNOT_MOUNT) or not self.dsn:
            self.close()
            raise NoSmallDisk(self.dsn or "the namespace could not be entered")

    @contextmanager
    def full(self, disk: str) -> Iterator[None]:
        """Fill the disk for the length of a block."""
        self._order(f"fill {disk}")
        try:
            yield
        finally:
            self._order(f"free {disk}")

    def restart(self) -> None:
        """Start it again, at the same address, whether or not it has ended by itself."""
        self._order("restart")

    @property
    def log(self) -> str:
        """What Postgres has written, on a disk that is not full."""
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.close()
        self._host.wait(60)
        self._host.stdout.close()

    def __enter__(self) -> "SmallDiskPostgres":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _order(self, order: str) -> None:
        assert self._host.stdin is not None
        self._host.stdin.write(f"{order}\n")
        self._host.stdin.flush()
        answer = self._answer()
        assert answer == "ok", answer or "the server's process is gone"

    def _answer(self) -> str:
        assert self._host.stdout is not None
        return self._host.stdout.readline().rstrip("\n")
