"""Authentication as a whole: the users, their source, and the check of their passwords."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from pulse_server.access.authenticator import Authenticator
from pulse_server.access.directory import Directory
from pulse_server.access.users import User, read_users_file
from pulse_server.access.users_file import SOURCE, UsersFile
from pulse_server.loops import Loop
from pulse_server.telemetry.metrics import Metrics

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
