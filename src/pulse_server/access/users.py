"""The users that an operator names, as `user:password` or `user:password:role`.

Those who keep something of a user are called back when the users change.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

# bcrypt reads no further: two passwords that differ only past it would be the same.
MAX_PASSWORD_BYTES = 72
# The salt's last letter carries two bits; bcrypt refuses others than these four at the check.
_BCRYPT = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
_COSTS = range(4, 32)
# The refusal of a caller. Here and not beside the check of passwords, which imports bcrypt.
WRONG = "The user or the password is wrong."


class Role(StrEnum):
    """A user's role. doors/callers.py lists its permissions."""

    ADMIN = "admin"
    OPERATOR = "operator"
    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"


OPERATORS = frozenset({Role.ADMIN, Role.OPERATOR})
"""The roles of people who run the queue. The others are programs, and viewers."""


class BadUsers(Exception):
    """The list of users cannot be used. The sentence has the entry's position, never its content."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    secret: str = field(repr=False)  # a bcrypt hash, or the password itself
    role: Role = Role.ADMIN

    @property
    def has_hash(self) -> bool:
        return self.secret.startswith("$2")

    @property
    def bcrypt_cost(self) -> int:
        """The work factor of the hash; 0 for a plain password."""
        return int(self.secret[4:6]) if self.has_hash else 0


def parse_users(text: str, source: str) -> tuple[User, ...]:
    """Read a comma-separated list. BadUsers names the first entry that is wrong."""
    return _users(enumerate(text.split(","), start=1), source, "entry")


def read_users_file(path: Path, source: str) -> tuple[User, ...]:
    """Read one entry per line; blank lines and lines that start with # are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadUsers(f"{source} cannot be read: {path}: {reason}.") from None
    entries = ((number, line) for number, line in enumerate(lines, start=1) if line.split("#", 1)[0].strip())
    return _users(entries, source, "line")


def _users(entries: Iterable[tuple[int, str]], source: str, unit: str) -> tuple[User, ...]:
    users: dict[str, User] = {}
    positions: dict[str, int] = {}
    for position, entry in entries:
        where = f"{source}, {unit} {position}"
        user = _user(entry.strip(), where)
        if user.name in users:
            raise BadUsers(f"{where}: this user is named in {unit} {positions[user.name]} already.")
        users[user.name] = user
        positions[user.name] = position
    if not users:
        raise BadUsers(
            f"{source} names no user, so every caller would be refused. Add one, or unset it to accept all."
        )
    return tuple(users.values())


def _user(entry: str, where: str) -> User:
    name, colon, rest = entry.partition(":")
    secret, second_colon, role = rest.partition(":")
    if not colon or not name or not secret:
        raise BadUsers(f"{where} is not of the form user:password or user:password:role.")
    if not name.isprintable() or any(character.isspace() for character in name):
        raise BadUsers(f"{where}: a user's name has no spaces and only printable characters.")
    if secret.startswith("$2"):
        found = _BCRYPT.fullmatch(secret)
        if found is None or int(found[1]) not in _COSTS:
            raise BadUsers(
                f"{where}: the password begins with $2 but is not a whole bcrypt hash. "
                "A shell eats $ in double quotes: use single ones."
            )
    elif len(secret.encode()) > MAX_PASSWORD_BYTES:
        raise BadUsers(
            f"{where}: the password is longer than {MAX_PASSWORD_BYTES} bytes, which is all bcrypt looks at. "
            "Choose a shorter one."
        )
    if not second_colon:
        return User(name, secret)
    if role not in {known.value for known in Role}:
        raise BadUsers(
            f"{where}: what follows the second colon is not a role ({', '.join(Role)}). "
            "A password that contains a colon has to be given as a bcrypt hash."
        )
    return User(name, secret, Role(role))


log = logging.getLogger(__name__)


class Directory:
    def __init__(self, users: Iterable[User]) -> None:
        self._users: dict[str, User] = {}
        self._listeners: list[Callable[[], None]] = []
        self.highest_cost = 0
        """The work factor of the costliest hash; 0 if every password is plain."""
        self._take(users)

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register a callback for changes of the users."""
        self._listeners.append(listener)

    def replace(self, users: Iterable[User]) -> None:
        """Replace the users."""
        before = self._users
        self._take(users)
        if self._users == before:
            return
        both = before.keys() & self._users.keys()
        log.info(
            "users_changed",
            extra={
                "added": sorted(self._users.keys() - before.keys()),
                "removed": sorted(before.keys() - self._users.keys()),
                "changed": sorted(name for name in both if before[name] != self._users[name]),
            },
        )
        for listener in self._listeners:
            listener()

    def _take(self, users: Iterable[User]) -> None:
        self._users = {user.name: user for user in users}
        costs = {user.bcrypt_cost for user in self._users.values() if user.has_hash}
        self.highest_cost = max(costs, default=0)
        if len(costs) > 1:
            log.warning(
                "bcrypt_costs_differ",
                extra={
                    "costs": sorted(costs),
                    "hint": "The time that a wrong password takes distinguishes such users from unknown "
                    "ones. Hash all passwords with one cost.",
                },
            )
