"""The release before migration 0011, taken from git: its servers, and its SDK in the workers."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.system.stage import Process, Pulsed, Stage, free_port

# The last state of 0.1.0 whose schema ends with migration 0010.
COMMIT = "e8928941eaa5df91adb7bfe4742a3c819f36cd9c"
_ROOT = Path(__file__).resolve().parents[3]
_GIT_SECONDS = 60


class ReleaseMissing(Exception):
    """The old release cannot be had. The sentence states why, and what to do."""


class OldPulsed(Pulsed):
    """A server of the old release. It logs an error for each statement that the new schema refuses."""

    @property
    def bugs(self) -> list[dict[str, Any]]:
        return []

    @property
    def refusals(self) -> int:
        """How many errors it has logged."""
        return len(super().bugs)


class OldRelease:
    """The sources of one commit, in a directory of their own. The packages are those of this checkout."""

    def __init__(self, directory: Path, commit: str) -> None:
        archive = directory / "old.tar"
        made = subprocess.run(
            ["git", "archive", "--format=tar", "-o", str(archive), commit, "src"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
        if made.returncode:
            raise ReleaseMissing(
                f"The sources of {commit} are not in this checkout: {made.stderr.strip()}. "
                "Run this in a git clone that has the whole history."
            )
        with tarfile.open(archive) as sources:
            sources.extractall(directory / "old", filter="data")
        self._path = os.pathsep.join([str(directory / "old" / "src"), str(_ROOT)])

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a process that imports this release."""
        return {"PYTHONPATH": self._path}

    async def migrate(self, stage: Stage) -> None:
        """Make the schema of this release, with its own `pulsed migrate`."""
        variables = self.variables | {"DB_HOST": stage.dsn}
        process = Process("migrate", stage.directory / "old-migrate.log", _pulsed("migrate"), variables)
        stage.processes.append(process)
        assert await process.ended() == 0, process.log

    async def pulsed(self, stage: Stage, number: int, settings: Mapping[str, str]) -> OldPulsed:
        """Start a server of this release and return it once it serves."""
        address = f"127.0.0.1:{free_port()}"
        variables = self.variables | settings | {"DB_HOST": stage.dsn, "PULSE_GRPC_ADDR": address}
        name = f"old-pulsed-{number}"
        server = OldPulsed(name, stage.directory / f"{name}.log", _pulsed(), variables)
        server.address = address
        stage.processes.append(server)
        await stage.serving(server)
        return server


def _pulsed(*arguments: str) -> list[str]:
    return ["-m", "pulse_server.main", *arguments]
