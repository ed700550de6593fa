"""Authenticates callers of gRPC and HTTP."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest

from pulse_server.access.directory import Directory
from pulse_server.access.passwords import Passwords
from pulse_server.access.throttle import Throttle, plain_address
from pulse_server.access.users import WRONG, Role, User
from pulse_server.domain.errors import TooManyLogins, Unauthenticated, Unavailable
from pulse_server.telemetry.metrics import Metrics

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
