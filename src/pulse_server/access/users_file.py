"""Follows the file of users: changes take effect within seconds, without a restart."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from pulse_server.access.directory import Directory
from pulse_server.access.users import BadUsers, User, read_users_file
from pulse_server.loops import Loop

# How long a changed file of users may go unnoticed. SIGHUP has it read at once.
USERS_FILE_INTERVAL = timedelta(seconds=3)
# The file is read once it has not changed for this long: an editor that writes in place takes a moment.
USERS_FILE_SETTLE = timedelta(milliseconds=200)

log = logging.getLogger(__name__)

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
