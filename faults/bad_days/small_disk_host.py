"""Runs a Postgres whose data and whose log each lie on a small disk: `python -m … DIRECTORY`.

The disks are tmpfs, mounted in a namespace of this process and visible to it and its children only, so that
root is not needed. It reads commands from its standard input, one per line, and answers each with a line:
`ok`, or what went wrong. It stops Postgres and exits at the end of its input.
"""

import ctypes
import os
import shutil
import sys
from pathlib import Path

from pulse_server.embedded import EmbeddedPostgres, launch
from tests.postgres_cluster import FAST_SETTINGS
from tests.server.outage_postgres import OutagePostgres

# Where they are mounted, below the data directory of Postgres, and how large they are.
DISKS = {"base": "96m", "pg_wal": "80m"}
BALLAST = "ballast"
CANNOT_MOUNT = "cannot mount"

# An answered commit is in the log, whatever happens to the processes; the machine itself stays up. Few
# segments are kept, so that a full disk is met soon.
_SETTINGS = FAST_SETTINGS | {
    "synchronous_commit": "on",
    "max_wal_size": "32MB",
    "min_wal_size": "32MB",
}
_CLONE_NEWNS = 0x00020000


class Host:
    """The server on its disks."""

    def __init__(self, directory: Path) -> None:
        self._data = directory / "postgres"
        with EmbeddedPostgres(directory, settings=_SETTINGS):
            pass  # it made the data, for which there are disks next
        for name, size in DISKS.items():
            _move_to_tmpfs(self._data / name, size)
        self._postgres = OutagePostgres(directory, _SETTINGS)
        self._postgres.start()

    @property
    def dsn(self) -> str:
        return self._postgres.dsn

    def obey(self, order: str) -> str:
        """Carry out a command. Returns the answer."""
        match order.split():
            case ["fill", disk]:
                _fill(self._data / disk / BALLAST)
            case ["free", disk]:
                (self._data / disk / BALLAST).unlink()
            case ["restart"]:
                self._postgres.stop()
                self._postgres.start()
            case _:
                return f"unknown command {order!r}"
        return "ok"

    def close(self) -> None:
        self._postgres.close()


def enter_namespaces() -> None:
    """Become the root of a namespace in which disks can be mounted. Outside of it nothing changes."""
    launch._enter_user_namespace(0, 0)
    launch._call_libc("unshare", _CLONE_NEWNS)


def _move_to_tmpfs(path: Path, size: str) -> None:
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    path.mkdir(mode=0o700)
    _mount_tmpfs(path, f"size={size},mode=0700")
    shutil.copytree(aside, path, dirs_exist_ok=True)
    shutil.rmtree(aside)


def _mount_tmpfs(path: Path, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (b"tmpfs", os.fsencode(path), b"tmpfs", ctypes.c_ulong(0), options.encode())
    if libc.mount(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount: {os.strerror(code)}")


def _fill(ballast: Path) -> None:
    """Leave not a single block."""
    with ballast.open("wb", buffering=0) as file:
        for block in (bytes(1 << 20), bytes(1 << 12)):
            try:
                while file.write(block) == len(block):
                    pass
            except OSError:
                continue


def main(directory: Path) -> None:
    try:
        enter_namespaces()
        host = Host(directory)
    except OSError as error:
        print(f"{CANNOT_MOUNT}: {error}", flush=True)
        return
    try:
        print(host.dsn, flush=True)
        for order in sys.stdin:
            print(host.obey(order), flush=True)
    finally:
        host.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
