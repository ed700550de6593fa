"""Finds the programs that a Patroni cluster needs, or names the missing packages."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pulse_server.embedded.directory import candidate_directories

_DEBIAN = Path("/usr/lib/postgresql")
# Patroni winds an old primary back and copies standbys with these; packages of clients alone have others.
_OF_POSTGRES = ("postgres", "initdb", "pg_ctl", "pg_basebackup", "pg_rewind", "pg_controldata")
# Of the Python that Debian's Patroni runs with, not of ours.
_IMPORTS = "import patroni.dcs.etcd, psycopg2"


class ProgramsMissing(Exception):
    """Its text is shown to the user."""


@dataclass(frozen=True)
class Programs:
    etcd: str
    patroni: str
    patronictl: str
    postgres: Path
    """The directory of its programs."""


def find_programs() -> Programs:
    """Return the paths of all programs. Raises ProgramsMissing."""
    found = {name: shutil.which(name) for name in ("etcd", "patroni", "patronictl")}
    postgres = _postgres()
    if not all(found.values()) or postgres is None or not _patroni_knows_etcd():
        raise ProgramsMissing(
            "The failover of a Patroni cluster needs etcd, Patroni and Postgres. On Debian: "
            "apt-get install etcd-server patroni python3-etcd postgresql"
        )
    return Programs(**{name: str(path) for name, path in found.items()}, postgres=postgres)


def _postgres() -> Path | None:
    """Debian's own, which Patroni of the same Debian knows; else what comes with the embedded Postgres."""
    whole = [
        directory
        for directory in candidate_directories()
        if all((directory / name).exists() for name in _OF_POSTGRES)
    ]
    return min(whole, key=lambda directory: _DEBIAN not in directory.parents, default=None)


def _patroni_knows_etcd() -> bool:
    asked = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", _IMPORTS], capture_output=True, timeout=30, check=False
    )
    return asked.returncode == 0
