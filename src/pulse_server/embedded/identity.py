"""Decides as whom Postgres runs: it refuses root, and initdb refuses a user without a name."""

import os
import pwd
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pulse_server.embedded import launch
from pulse_server.embedded.errors import DataDirectoryUnusable

# The overflow id also stands for every id that a namespace does not map, so it is the last choice.
_OVERFLOW_UID = 65534


@dataclass(frozen=True)
class Identity:
    """The account that runs Postgres, and the owner of its files as seen from outside."""

    launcher_option: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Whether this identity may pass through every directory down to the path, itself included."""
        return self.obstacle(path) is None

    def obstacle(self, path: Path) -> Path | None:
        """Return the topmost existing directory on the path that is closed to this identity."""
        for directory in (*reversed(path.parents), path):
            try:
                found = directory.stat()
            except FileNotFoundError:
                return None
            except PermissionError:
                return directory
            if not self._may_enter(found):
                return directory
        return None

    def _may_enter(self, found: os.stat_result) -> bool:
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def choose_identity(directory: Path, data_directory: Path, *, allow_namespace: bool = True) -> Identity:
    """Return as whom to run Postgres on the data directory; nothing on the machine is changed.

    A named ordinary user runs it as it is. Root, and a uid without a name, enter a user namespace, in which
    files stay theirs. Where the machine forbids that, root gives way to an unprivileged account, and so it
    does when the data belongs to one already.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0 and _has_name(uid):
        return Identity("self", uid, gid)
    owner = _owner(data_directory / "PG_VERSION")
    if uid == 0 and owner is not None and owner.st_uid != 0:
        return _account(owner.st_uid, owner.st_gid)
    if allow_namespace and (inside := _account_inside_namespace()) is not None:
        option = f"namespace:{inside.pw_uid}:{inside.pw_gid}"
        if _launcher_accepts(option):
            return Identity(option, uid, gid)
    if uid != 0:
        return Identity("self", uid, gid)
    if owner is not None:
        raise DataDirectoryUnusable(
            directory,
            "it belongs to root, Postgres refuses to run as root, and this machine forbids user namespaces "
            f"(`chown -R nobody {data_directory}` would let it run as nobody)",
        )
    for account in _unprivileged_accounts():
        return _account(account.pw_uid, account.pw_gid)
    raise DataDirectoryUnusable(directory, "Postgres refuses to run as root, and there is no account nobody")


def _account(uid: int, gid: int) -> Identity:
    return Identity(f"account:{uid}:{gid}", uid, gid)


def _owner(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _unprivileged_accounts() -> list[pwd.struct_passwd]:
    names = {account.pw_name: account for account in pwd.getpwall() if account.pw_uid != 0}
    return [names[name] for name in ("postgres", "nobody") if name in names]


def _account_inside_namespace() -> pwd.struct_passwd | None:
    """Choose the name that we bear inside a namespace; any will do, as it grants nothing outside."""
    preferred = [*_unprivileged_accounts(), *pwd.getpwall()]
    proper = (account for account in preferred if account.pw_uid not in (0, _OVERFLOW_UID))
    return next(proper, next(iter(_unprivileged_accounts()), None))


def _launcher_accepts(option: str) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    probe = [sys.executable, "-I", "-S", launch.__file__, f"identity={option}", "watch=signal"]
    probe += [f"parent={os.getpid()}", "--", "/bin/true"]
    # A machine without /bin/true answers CANNOT_EXECUTE, which proves the identity just as well.
    answer = subprocess.run(probe, capture_output=True, timeout=30, check=False)
    return answer.returncode not in (launch.CANNOT_TAKE_IDENTITY, launch.PARENT_IS_GONE)
