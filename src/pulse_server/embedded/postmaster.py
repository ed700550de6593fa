"""Reads postmaster.pid, the file of the server process of a data directory."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

_PID_LINE = 0
_STATUS_LINE = 7


@dataclass(frozen=True)
class Postmaster:
    """The content of postmaster.pid: the process, and whether it accepts connections."""

    pid: int
    is_ready: bool


def read_postmaster(data_directory: Path) -> Postmaster | None:
    """Read postmaster.pid. None if it is missing or half written."""
    try:
        lines = (data_directory / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[_PID_LINE].strip().isdigit():
        return None
    status = lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else ""
    return Postmaster(int(lines[_PID_LINE]), status == "ready")


def is_serving(data_directory: Path, pid: int) -> bool:
    """Whether the process lives and, where that can be seen, is a server of this data directory.

    The second half matters in containers: pids repeat from run to run, so that a file left by a killed
    server is often the pid of another process.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if not sys.platform.startswith("linux"):
        return True
    try:
        # A server changes into its data directory before it writes the file.
        return Path(f"/proc/{pid}/cwd").samefile(data_directory)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
