"""Authentication as a whole: the users, their source, and the check of their passwords."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from pulse_server.access.authenticator import Authenticator
from pulse_server.access.directory import Directory
from pulse_server.access.users import BadUsers, User, read_users_file
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics

# ---------------------------------------------------------------- users file
# Follows the file of users: changes take effect within seconds, without a restart.

# How long a changed file of users may go unnoticed. SIGHUP has it read at once.
USERS_FILE_INTERVAL = timedelta(seconds=3)
# The file is read once it has not changed for this long: an editor that writes in place takes a moment.
USERS_FILE_SETTLE = timedelta(milliseconds=200)

SOURCE = "PULSE_AUTH_USERS_FILE"


class _Look(NamedTuple):
    """The state of a file without its content."""

    inode: int
    size: int
    modified_ns: int


class UsersFile:
    """A file that cannot be read or parsed changes nothing: the users stay as they were."""

    def __init__(self, path: Path, directory: Directory) -> None:
        self._path = path
        self._directory = directory
        self._seen: _Look | None = None
        self._read: _Look | None = None
        self._is_asked_for = False
        self._complaint = ""
        self.loop = Loop("users", self.look, USERS_FILE_INTERVAL)

    def read_again(self) -> None:
        """Read the file now, changed or not."""
        self._is_asked_for = True
        self.loop.nudge()

    async def look(self) -> timedelta | None:
        """Read the file if it has changed and is no longer being written."""
        look = await asyncio.to_thread(_look_at, self._path)
        is_asked_for, self._is_asked_for = self._is_asked_for, False
        if not is_asked_for:
            if look == self._read:
                return None
            if look != self._seen:
                self._seen = look
                return USERS_FILE_SETTLE
        self._seen = self._read = look
        try:
            users = await asyncio.to_thread(read_users_file, self._path, SOURCE)
        except BadUsers as error:
            self._complain(str(error))
        else:
            self._accept(users)
        return None

    def _accept(self, users: tuple[User, ...]) -> None:
        if self._complaint:
            log.info("users_file_is_good_again")
        self._complaint = ""
        self._directory.replace(users)

    def _complain(self, sentence: str) -> None:
        if sentence != self._complaint:
            log.error("users_file_is_bad", extra={"reason": sentence, "hint": "The users stay as they were."})
        self._complaint = sentence


def _look_at(path: Path) -> _Look | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Look(found.st_ino, found.st_size, found.st_mtime_ns)


# ---------------------------------------------------------------- access

log = logging.getLogger(__name__)


class Access:
    """Reads the users from the file, if one is set. Raises BadUsers if it cannot be read."""

    def __init__(self, users: Iterable[User], users_file: Path | None, metrics: Metrics) -> None:
        self.directory = Directory(users if users_file is None else read_users_file(users_file, SOURCE))
        self.authenticator = Authenticator(self.directory, metrics)
        self.users_file = None if users_file is None else UsersFile(users_file, self.directory)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return () if self.users_file is None else (self.users_file.loop,)

    def read_again(self) -> None:
        """Use the current content of the file. Users from the environment never change."""
        if self.users_file is None:
            log.info("no_users_to_read_again", extra={"hint": f"Only those of {SOURCE} can change."})
        else:
            self.users_file.read_again()

    def close(self) -> None:
        self.authenticator.close()
