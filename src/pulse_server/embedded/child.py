"""Starts programs through the launcher, so that they end with this process whatever ends it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pulse.supervision.processes import ProcessGroup
from pulse_server.embedded import launch
from pulse_server.embedded.errors import DataDirectoryUnusable
from pulse_server.embedded.identity import Identity

ParentWatch = Literal["signal", "pipe"]

_WORKING_DIRECTORY = "/proc/self/cwd"
_KEEPS_ITS_WORKING_DIRECTORY_SINCE = 16


def default_parent_watch() -> ParentWatch:
    """Choose how a child learns of our death: by the kernel where that is sound, else by a guard process.

    Linux ties the death signal to the thread that spawned the child. Only the main thread lives as long as
    the process, so from any other thread the guard is used.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    return "signal" if sys.platform.startswith("linux") and is_main_thread else "pipe"


class Child(ProcessGroup):
    """A running program, or the guard that runs it."""

    def leads(self, pid: int) -> bool:
        """Whether the process is this child, or the program that the child guards."""
        try:
            return os.getpgid(pid) == self.process.pid
        except OSError:
            return False

    def stop(self, steps: Sequence[tuple[signal.Signals, timedelta]]) -> None:
        """Send each signal in turn, allowing it its time, and SIGKILL in the end. Returns once it is gone."""
        for number, patience in (*steps, (signal.SIGKILL, None)):
            # An unreaped child keeps its pid, so the group cannot be someone else's.
            if self.is_running:
                self.send_signal(number)
                self.ends_within(patience.total_seconds()) if patience else self.process.wait()
        self.close()


@dataclass(frozen=True)
class Launcher:
    """Starts programs under one identity, each bound to the life of this process."""

    identity: Identity
    watch: ParentWatch

    def name_of(self, data_directory: Path, major: int) -> str:
        """Return the path by which a program started in the data directory can open it.

        That is its own path, unless the account that stands in for root may not enter a directory
        above it. Then it is a link to the working directory, which avoids the closed directory:
        no permission has to change. Raises DataDirectoryUnusable if neither works.
        """
        obstacle = self.identity.obstacle(data_directory.parent)
        if obstacle is None:
            return str(data_directory)
        # Older programs leave their working directory to find themselves, and could not come back.
        if major >= _KEEPS_ITS_WORKING_DIRECTORY_SINCE and Path(_WORKING_DIRECTORY).exists():
            return _WORKING_DIRECTORY
        reason = f"Postgres, which runs as uid {self.identity.uid} here, may not enter {obstacle}"
        raise DataDirectoryUnusable(data_directory.parent, reason)

    def spawn(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        output: int,
        stdin: int = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start the command in the directory, in a clean environment, its errors joined with its output."""
        options = [
            f"parent={os.getpid()}",
            f"watch={self.watch}",
            f"identity={self.identity.launcher_option}",
        ]
        launcher = [sys.executable, "-I", "-S", launch.__file__, *options]
        return Child(
            lambda lifeline: [*launcher, f"lifeline={lifeline}", "--", *command],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**_clean_environment(), **(environment or {})},
        )


def _clean_environment() -> dict[str, str]:
    # PGDATA, PGPORT, PGOPTIONS and the like belong to the user's other servers. Every machine has
    # the C locale, and it keeps messages in one language.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}
