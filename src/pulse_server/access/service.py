"""Authenticates callers of gRPC and HTTP: the users, the check of their passwords, and its throttle."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import math
import os
import secrets
import sys
import threading
import time
from binascii import a2b_base64
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b, sha256
from hmac import compare_digest
from pathlib import Path
from typing import NamedTuple

import bcrypt

from pulse_server.access.users import (
    MAX_PASSWORD_BYTES,
    WRONG,
    BadUsers,
    Directory,
    Role,
    User,
    read_users_file,
)
from pulse_server.base.errors import TooManyLogins, Unauthenticated, Unavailable
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics

# ---------------------------------------------------------------- passwords
# Checks passwords, off the event loop and at the same cost whether the user exists or not.

# A check of a bcrypt hash takes 90 to 350 ms of a core. One at a time: with two, the first burst of a flood
# took both cores of a small machine for three seconds. Accepted credentials are not checked again.
PASSWORD_THREADS = 1
# Checks that may wait for the thread: two or three seconds' worth, less than the timeout of a call of the
# SDK.
PASSWORD_LINE = 8
# A lower priority than the threads that move jobs, which win a contested core. Linux only.
PASSWORD_NICENESS = 10


class Passwords:
    """A few threads with a short line in front of them; Unavailable if the line is full."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(
            PASSWORD_THREADS, thread_name_prefix="password", initializer=_step_back
        )
        self._under_way = 0

    async def match(self, user: User | None, password: bytes, highest_cost: int) -> bool:
        """Whether the password is the user's. Always False for None, after the same time.

        `highest_cost` is the highest bcrypt cost among all users' hashes, 0 if no user has a hash.
        If any user has one, every check runs bcrypt: the response time must not reveal which users
        have plain passwords.
        """
        if len(password) > MAX_PASSWORD_BYTES or b"\0" in password:
            # bcrypt would repeat a password after a NUL: "a" and "a\0a" are the same to it.
            return False
        if not highest_cost:
            return _is_equal(user, password)
        hashed = user.secret if user is not None and user.has_hash else _unmatchable_hash(highest_cost)
        matches = await self._in_thread(password, hashed)
        if user is not None and user.has_hash:
            return matches
        return _is_equal(user, password)

    def close(self) -> None:
        """Stop checking. Does not wait for the check under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, password: bytes, hashed: str) -> bool:
        if self._under_way >= PASSWORD_THREADS + PASSWORD_LINE:
            raise Unavailable("The server has more passwords to check than it can. Try again in a moment.")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, bcrypt.checkpw, password, hashed.encode()
            )
        finally:
            self._under_way -= 1


def _is_equal(user: User | None, password: bytes) -> bool:
    secret = user.secret.encode() if user is not None else b""
    # Digests: the time of a comparison of the texts would reveal whether their lengths are equal.
    matches = hmac.compare_digest(sha256(secret).digest(), sha256(password).digest())
    return matches and user is not None


def _unmatchable_hash(cost: int) -> str:
    """A hash that costs as much to check as a real one, and that matches no known password."""
    return f"$2b${cost:02d}${'.' * 53}"


def _step_back() -> None:
    """Lower the priority of this thread, below the threads that move jobs."""
    if sys.platform == "linux":  # elsewhere a priority belongs to the whole process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PASSWORD_NICENESS)


# ---------------------------------------------------------------- throttle
# Limits wrong passwords: one bucket per address, and one per address and user.
#
# Checked before any password is hashed. Memory is bounded for any number of names and addresses.

# After its burst an address gets one check per interval: half a check a second, 6 to 18% of a core.
LOGIN_INTERVAL = timedelta(seconds=2)
# Wrong passwords in a row for one user from one address: a typing error does not lock a user out.
LOGIN_BURST_PER_USER = 5
# The same for all users together, so that another name each time does not avoid the limit. Several
# applications may share an address, each with its own user, and start at once.
LOGIN_BURST_PER_PEER = 10
# Addresses, and pairs of address and user, that are remembered. About 100 bytes each.
LOGINS_REMEMBERED = 10_000


class Throttle:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._peers = _Buckets(LOGIN_BURST_PER_PEER)
        self._users = _Buckets(LOGIN_BURST_PER_USER)

    def take(self, peer: str, user: str) -> float:
        """Take the right to one check. Returns 0, or how many seconds to wait if there is none."""
        now = self._clock()
        network = network_of(peer)
        wait = max(self._peers.wait(network, now), self._users.wait((network, user), now))
        if wait <= 0:
            self._peers.take(network, now)
            self._users.take((network, user), now)
        return wait

    def give_back(self, peer: str, user: str) -> None:
        """The check did not fail: it does not count."""
        network = network_of(peer)
        self._peers.give_back(network)
        self._users.give_back((network, user))


class _Buckets:
    """Token buckets that each are one number: when the bucket will be full again.

    A full bucket is not stored. Past the bound the least recently used one is dropped; a caller that makes up
    names for that purpose is limited by the bucket of its address.
    """

    def __init__(self, burst: int) -> None:
        self._interval = LOGIN_INTERVAL.total_seconds()
        self._span = self._interval * burst
        self._full_at: OrderedDict[int, float] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        return max(0.0, self._full_at.get(hash(key), now) + self._interval - now - self._span)

    def take(self, key: Hashable, now: float) -> None:
        # The hash alone, for its size: a name may have kilobytes. Equal hashes share a bucket.
        short = hash(key)
        self._full_at[short] = max(self._full_at.get(short, now), now) + self._interval
        self._full_at.move_to_end(short)
        if len(self._full_at) > LOGINS_REMEMBERED:
            self._full_at.popitem(last=False)

    def give_back(self, key: Hashable) -> None:
        short = hash(key)
        if short in self._full_at:
            self._full_at[short] -= self._interval


@lru_cache(maxsize=1024)  # a flood comes from few addresses, and reading one takes longer than the rest here
def network_of(peer: str) -> str:
    """The key of one caller: an IPv4 address, the /64 of an IPv6 customer, or the text itself."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer  # a unix socket, or a proxy that passes no address
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
    return peer


def plain_address(peer: str) -> str:
    """The address as an operator knows it: IPv4 as such, also if a socket for both families accepted it."""
    return peer.removeprefix("::ffff:") if "." in peer else peer


# ---------------------------------------------------------------- authenticator

log = logging.getLogger(__name__)

NO_CREDENTIALS = (
    "This server wants a user and a password: give Pulse(user=…, password=…), "
    "or set PULSE_USER and PULSE_PASSWORD."
)
MALFORMED = "The authorization cannot be read: it has to be 'Basic' and the base64 of user:password."


class BadCredentials(Exception):
    """The header does not have the form of Basic credentials. Never contains the header."""


@dataclass(slots=True)  # not frozen: one is made for every call, and a frozen one takes thrice as long
class Credentials:
    """The Authorization header of HTTP's Basic scheme, which gRPC carries as metadata."""

    name: str
    password: bytes = field(repr=False)
    raw: bytes = field(repr=False)  # name:password; the name has no colon, so no two pairs look the same

    @classmethod
    def parse(cls, header: str) -> Credentials:
        """Read the header. BadCredentials if it cannot be."""
        scheme, _, token = header.partition(" ")
        if scheme != "Basic" and scheme.lower() != "basic":
            raise BadCredentials
        try:
            raw = a2b_base64(token.strip(), strict_mode=True)
            name, colon, password = raw.partition(b":")
            if colon:
                return cls(name.decode(), password, raw)
        except ValueError:  # its text would quote the bytes, and those are a secret
            pass
        raise BadCredentials


class Authenticator:
    """Passwords are checked once: a success is remembered until the user changes, and never throttled."""

    def __init__(
        self,
        directory: Directory,
        metrics: Metrics,
        passwords: Passwords | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._metrics = metrics
        self._passwords = passwords or Passwords()
        self._throttle = Throttle(clock)
        # The cached digests are useless to a reader of this memory without the key, and after the
        # process has ended.
        self._key = secrets.token_bytes(32)
        self._verified: dict[str, tuple[User, bytes]] = {}
        self._checks: dict[bytes, asyncio.Task[User]] = {}
        directory.on_change(self._forget_changed)

    def recognize(self, authorization: str | None) -> User | None:
        """The user, if these credentials were accepted before. None if they have to be checked.

        Raises Unauthenticated if there are none, or none that can be read.
        """
        return self._remembered(*self._read(authorization))

    async def authenticate(self, authorization: str | None, peer: str) -> User:
        """The user whose credentials these are. `peer` is the caller's address, without a port.

        Raises Unauthenticated, TooManyLogins, or Unavailable when too many others wait to be checked.
        """
        credentials, digest = self._read(authorization)
        if (user := self._remembered(credentials, digest)) is not None:
            return user
        # A hundred workers of one deployment start at once: one check serves them all.
        check = self._checks.get(digest)
        if check is None:
            self._admit(credentials.name, peer)
            check = asyncio.create_task(self._check(credentials, digest, peer))
            self._checks[digest] = check
            check.add_done_callback(lambda done: self._over(digest, done))
        try:
            # A caller that hangs up must not cancel the check that other callers wait for.
            return await asyncio.shield(check)
        finally:
            del check  # it has the error, whose traceback has this frame: they would keep each other

    def role_of(self, name: str) -> Role | None:
        user = self._directory.find(name)
        return user.role if user is not None else None

    def close(self) -> None:
        self._passwords.close()

    def _read(self, authorization: str | None) -> tuple[Credentials, bytes]:
        if not authorization:
            raise Unauthenticated(NO_CREDENTIALS)
        try:
            credentials = Credentials.parse(authorization)
        except BadCredentials:
            raise Unauthenticated(MALFORMED) from None
        return credentials, blake2b(credentials.raw, key=self._key, digest_size=32).digest()

    def _remembered(self, credentials: Credentials, digest: bytes) -> User | None:
        known = self._verified.get(credentials.name)
        return known[0] if known is not None and compare_digest(known[1], digest) else None

    def _admit(self, name: str, peer: str) -> None:
        wait = self._throttle.take(peer, name)
        if wait > 0:
            self._metrics.logins.add("throttled")
            raise TooManyLogins(math.ceil(wait))

    async def _check(self, credentials: Credentials, digest: bytes, peer: str) -> User:
        try:
            user = await self._match(credentials)
        except Unavailable:
            self._metrics.logins.add("busy")
            self._throttle.give_back(peer, credentials.name)
            raise
        if user is None:
            self._metrics.logins.add("wrong")
            # An unknown name may be a password in the wrong field.
            known = self._directory.find(credentials.name)
            log.warning(
                "login_refused", extra={"peer": plain_address(peer), "user": known.name if known else None}
            )
            raise Unauthenticated(WRONG)
        self._metrics.logins.add("ok")
        self._throttle.give_back(peer, credentials.name)
        self._verified[user.name] = (user, digest)
        return user

    async def _match(self, credentials: Credentials) -> User | None:
        while True:
            user = self._directory.find(credentials.name)
            matches = await self._passwords.match(user, credentials.password, self._directory.highest_cost)
            if self._directory.find(credentials.name) == user:
                return user if matches else None
            # The users changed during the check: check again, this user may be gone.

    def _over(self, digest: bytes, check: asyncio.Task[User]) -> None:
        del self._checks[digest]
        if not check.cancelled():
            check.exception()  # else a check whose callers all hung up would be logged as never asked for

    def _forget_changed(self) -> None:
        for name, (verified, digest) in list(self._verified.items()):
            user = self._directory.find(name)
            if user is None or user.secret != verified.secret:
                del self._verified[name]
            else:
                self._verified[name] = (user, digest)  # with the role that it has now


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
