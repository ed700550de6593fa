"""Makes a new data directory with an empty database `pulse`, completely or not at all."""

import os
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from pulse_server.embedded.binaries import Installation
from pulse_server.embedded.child import Launcher
from pulse_server.embedded.directory import DataDirectory
from pulse_server.embedded.errors import StartFailed
from pulse_server.embedded.sockets import PORT, hand_over

SUPERUSER = "pulse"
DATABASE = "pulse"
# initdb takes a second or two; a machine that needs this long is out of order.
_PATIENCE = timedelta(minutes=5)
_BUILTIN_LOCALE_SINCE = 17


def address_of(sockets: Path) -> str:
    """Return the address of the database, for drivers and psql alike."""
    # %20 for a blank: libpq does not read + as one.
    query = urllib.parse.urlencode({"host": sockets, "port": PORT}, safe="/", quote_via=urllib.parse.quote)
    return f"postgresql://{SUPERUSER}@/{DATABASE}?{query}"


def initialize(
    directory: DataDirectory,
    installation: Installation,
    launcher: Launcher,
    settings: Mapping[str, str],
) -> None:
    """Run initdb and create the database beside the final place, then move it there in one step.

    A kill leaves a complete directory or none. The next start removes unfinished files.
    """
    if directory.was_made_here:
        hand_over(directory.path, launcher.identity)
    made = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=directory.path))
    try:
        hand_over(made, launcher.identity)
        name = launcher.name_of(made, installation.major)
        _run(launcher, made, _initdb_command(installation, name, settings))
        create = f"CREATE DATABASE {DATABASE}\n"
        _run(launcher, made, _single_user_command(installation, name, settings), given=create)
        made.rename(directory.postgres)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    _sync(directory.path)


def _initdb_command(installation: Installation, name: str, settings: Mapping[str, str]) -> list[str]:
    command = [installation.program("initdb"), f"--pgdata={name}", f"--username={SUPERUSER}"]
    command += ["--encoding=UTF8", "--locale=C", "--data-checksums"]
    # The socket directory is closed to others, which is the authentication; `peer` would compare ids across
    # the border of a user namespace, where they differ.
    command += ["--auth-local=trust", "--auth-host=reject"]
    if installation.major >= _BUILTIN_LOCALE_SINCE:
        # Unicode character classes without a locale of the operating system.
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if settings.get("fsync") == "off":
        command.append("--no-sync")
    return command


def _single_user_command(installation: Installation, name: str, settings: Mapping[str, str]) -> list[str]:
    command = [installation.program("postgres"), "--single", "-D", name, "-c", "exit_on_error=on"]
    if settings.get("fsync") == "off":
        command += ["-c", "fsync=off"]
    return [*command, "postgres"]


def _run(launcher: Launcher, made: Path, command: Sequence[str], given: str = "") -> None:
    child = launcher.spawn(command, made, output=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        output, _ = child.process.communicate(given.encode(), _PATIENCE.total_seconds())
    except subprocess.TimeoutExpired as error:
        raise StartFailed(
            f"{Path(command[0]).name} took longer than {_PATIENCE} and was ended.", ""
        ) from error
    finally:
        child.stop(())
    if child.process.returncode != 0:
        what = f"The embedded database could not be made: {Path(command[0]).name} failed."
        raise StartFailed(what, output.decode(errors="replace").strip())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
