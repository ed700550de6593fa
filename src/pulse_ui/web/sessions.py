"""Sessions, kept in memory, each with the connection of its user to pulsed.

The password is used for that connection only, so pulsed decides what each user may do. A restart of the
dashboard logs all users out.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pulse
from pulse_ui import tuning
from pulse_ui.web.changes import ChangeFeed
from pulse_ui.web.operations import Operations


@dataclass(frozen=True, slots=True)
class Notice:
    """A message shown once, at the top of the next page."""

    text: str
    kind: str = "good"
    """good or bad."""
    link: str | None = None
    link_text: str = ""


@dataclass(slots=True)
class Account:
    """A connection to pulsed as one user, and the identity of that user."""

    client: pulse.Pulse
    identity: pulse.Identity
    identity_checked_at: float
    changes: ChangeFeed
    operations: Operations

    async def close(self) -> None:
        await self.operations.close()
        await self.changes.close()
        await self.client.close()


@dataclass(slots=True, eq=False)
class Session:
    """One browser. Without an account it is not logged in."""

    created_at: float
    seen_at: float
    csrf_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    account: Account | None = None
    owns_account: bool = False
    """False: without users in pulsed all sessions share one."""
    notices: list[Notice] = field(default_factory=list)

    def add_notice(self, notice: Notice) -> None:
        self.notices = [*self.notices, notice][-tuning.NOTICES :]

    def take_notices(self) -> list[Notice]:
        notices, self.notices = self.notices, []
        return notices


class Sessions:
    """Sessions by the key in the cookie; only the hash of the key is stored."""

    def __init__(self, idle: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle = idle.total_seconds()
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def find(self, key: str | None, *, touch: bool) -> Session | None:
        """Return the session of this key unless it has ended. `touch`: count it as activity."""
        if not key:
            return None
        session = self._sessions.get(_hash(key))
        if session is None or self._has_ended(session):
            if session is not None:
                self.end(session)
            return None
        if touch:
            session.seen_at = self._clock()
        return session

    def open(self, account: Account | None = None, *, owns_account: bool = False) -> tuple[str, Session]:
        """Start a session. Returns the key for the cookie."""
        self._evict()
        key = secrets.token_urlsafe(32)
        now = self._clock()
        session = Session(now, now, account=account, owns_account=owns_account)
        self._sessions[_hash(key)] = session
        return key, session

    def is_open(self, session: Session) -> bool:
        """True unless it has ended."""
        return session in self._sessions.values() and not self._has_ended(session)

    def end(self, session: Session) -> None:
        """End a session: its cookie becomes invalid, and its connection closes."""
        self._sessions = {key: other for key, other in self._sessions.items() if other is not session}
        if session.owns_account and session.account is not None:
            task = asyncio.get_running_loop().create_task(session.account.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return (
            now - session.seen_at > self._idle
            or now - session.created_at > tuning.SESSION_LONGEST.total_seconds()
        )

    def _evict(self) -> None:
        if len(self._sessions) < tuning.SESSIONS:
            return
        for session in [session for session in self._sessions.values() if self._has_ended(session)]:
            self.end(session)
        if len(self._sessions) >= tuning.SESSIONS:
            # Sessions without a login first, then the longest idle.
            self.end(min(self._sessions.values(), key=lambda one: (one.account is not None, one.seen_at)))


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
