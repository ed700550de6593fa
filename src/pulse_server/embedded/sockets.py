"""The directory of the server's socket. Its path is the address of the database, so it stays the same.

It is `socket` in the data directory. Where that path cannot be the address, it is a directory in /tmp with a
name made from the path of the data directory.
"""

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

from pulse_server.embedded.errors import DataDirectoryUnusable
from pulse_server.embedded.identity import Identity

PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
_PROBE = f"{SOCKET[:-1]}p"
# Server and clients take a list of directories or hosts: these would end the path early.
_SEPARATORS = set(',":')


def socket_places(data_directory: Path) -> list[Path]:
    """Return where the directory may be, the preferred place first."""
    name = f"pulse-{hashlib.sha256(os.fsencode(data_directory)).hexdigest()[:16]}"
    # /tmp before TMPDIR: applications and the next pulsed may run with another TMPDIR.
    bases = dict.fromkeys((Path("/tmp"), Path(tempfile.gettempdir())))
    return [data_directory / "socket", *(base / name for base in bases)]


def make_socket_directory(data_directory: Path, identity: Identity) -> Path:
    """Make the private, empty directory of the socket at the first place where a socket can be.

    No server may run on the data directory: the socket of a killed one is removed.
    Raises DataDirectoryUnusable.
    """
    for place in socket_places(data_directory):
        if set(str(place)) & _SEPARATORS or not identity.can_reach(place.parent):
            continue
        try:
            make_private(place, identity)
        except FileExistsError:
            raise DataDirectoryUnusable(
                data_directory, f"{place} is in the place of its socket, and is not empty or not ours"
            ) from None
        except OSError:
            continue
        if _holds_sockets(place):
            return place
        remove_socket_directory(place)
    raise DataDirectoryUnusable(
        data_directory, "its path is too long for a unix socket, and no temporary directory can hold one"
    )


def make_private(place: Path, identity: Identity) -> None:
    """Make the directory, or empty it if it is there and private.

    Raises OSError: FileExistsError if something else is there and cannot be removed.
    """
    if _is_private(place, identity):
        _remove_sockets(place)
        return
    remove_socket_directory(place)
    place.mkdir(mode=0o700)
    hand_over(place, identity)


def remove_socket_directory(place: Path) -> None:
    """Remove a socket directory and the sockets in it, and nothing else."""
    _remove_sockets(place)
    with contextlib.suppress(OSError):
        place.rmdir()


def hand_over(made: Path, identity: Identity) -> None:
    """Give a directory that we have just made to the account that Postgres runs as."""
    if os.geteuid() != identity.uid:
        # The account may own the directory above, and put a link in place of this one.
        os.chown(made, identity.uid, identity.gid, follow_symlinks=False)


def _is_private(place: Path, identity: Identity) -> bool:
    """Whether no other account can open the directory, or has put a link in its place."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == identity.uid and not found.st_mode & 0o077


def _remove_sockets(place: Path) -> None:
    # By descriptor: a link in this place may lead to the sockets of another server.
    with contextlib.suppress(OSError):
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name in os.listdir(directory):  # noqa: PTH208
                if name.startswith(".s.PGSQL."):
                    os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)


def _holds_sockets(place: Path) -> bool:
    """Whether the path is short enough for a socket, and the file system knows sockets: try it."""
    probe = place / _PROBE
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.bind(str(probe))
        probe.unlink()
    except OSError:
        return False
    return True
