"""Who gets in, as a whole: the users, where they come from, and who tells them by their passwords."""

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
    """Reads the users from the file, if there is one; BadUsers if that cannot be done."""

    def __init__(self, users: Iterable[User], users_file: Path | None, metrics: Metrics) -> None:
        self.directory = Directory(users if users_file is None else read_users_file(users_file, SOURCE))
        self.authenticator = Authenticator(self.directory, metrics)
        self.users_file = None if users_file is None else UsersFile(users_file, self.directory)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return () if self.users_file is None else (self.users_file.loop,)

    def read_again(self) -> None:
        """Take over what is in the file now. Users from the environment are the process's for its life."""
        if self.users_file is None:
            log.info("no_users_to_read_again", extra={"hint": f"Only those of {SOURCE} can change."})
        else:
            self.users_file.read_again()

    def close(self) -> None:
        self.authenticator.close()
