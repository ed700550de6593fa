"""Sessions, kept in memory, each with the connection of its user to pulsed, and its feed of changes.

The password is used for that connection only, so pulsed decides what each user may do. A restart of the
dashboard logs all users out.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pulse
from pulse_ui import tuning
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


# ---------------------------------------------------------------- accounts


async def connect(server: str | None, user: str = "", password: str = "") -> Account:
    """Log in to pulsed and return the account. Raises the SDK's errors, and leaves nothing open."""
    # Not None: the SDK would read user and password from the environment, for every visitor.
    client = pulse.Pulse(server, user=user, password=password, timeout=tuning.CALL_TIMEOUT)
    try:
        identity = await client.whoami()
    except BaseException:
        await client.close()
        raise
    return Account(client, identity, time.monotonic(), ChangeFeed(client), Operations())


async def refresh_identity(account: Account) -> None:
    """Refresh the identity if it is old. Raises Unauthenticated if the user no longer exists."""
    if time.monotonic() - account.identity_checked_at > tuning.IDENTITY_AGE.total_seconds():
        account.identity = await account.client.whoami()
        account.identity_checked_at = time.monotonic()


class OpenAccount:
    """The account that all visitors share on a pulsed without users.

    A restart of pulsed may change that, so it is checked as often as identities are.
    """

    def __init__(self, server: str | None) -> None:
        self._server = server
        self._account: Account | None = None
        self._closed_until = 0.0
        self._asking: asyncio.Task[Account | None] | None = None

    async def get(self) -> Account | None:
        """Return the account, or None if pulsed requires a login. Raises the SDK's errors."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        # Concurrent callers share one task: a second account would be lost, with its sessions.
        # Shielded: a canceled caller must not cancel the shared task.
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Account | None:
        if self._account is None:
            if time.monotonic() < self._closed_until:
                return None
            try:
                self._account = await connect(self._server)
            except pulse.Unauthenticated:
                self._closed_until = time.monotonic() + tuning.IDENTITY_AGE.total_seconds()
                return None
        try:
            await refresh_identity(self._account)
        except pulse.Unauthenticated:
            account, self._account = self._account, None
            await account.close()
            return None
        return self._account

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._account is not None:
            await self._account.close()


# ---------------------------------------------------------------- changes
# One watch of pulsed for all open pages of a user.


class Listener:
    """One open page. It is notified that something changed, and fetches itself again."""

    def __init__(self, job_id: str | None) -> None:
        self._job_id = job_id
        self._changed = asyncio.Event()
        self.is_over = False

    def notify(self, news: pulse.Transitions) -> None:
        # Progress concerns the page of its job only: a list would be fetched again every second.
        if (
            news.missed
            or news.interrupted
            or any(
                change.progress is None if self._job_id is None else change.job_id == self._job_id
                for change in news.transitions
            )
        ):
            self._changed.set()

    def end(self) -> None:
        self.is_over = True
        self._changed.set()

    async def changes(self) -> AsyncIterator[bool]:
        """Yield True for a change, at most once a second, and False as a heartbeat."""
        while not self.is_over:
            heartbeat = tuning.STREAM_HEARTBEAT.total_seconds()
            try:
                async with asyncio.timeout(heartbeat):
                    await self._changed.wait()
            except TimeoutError:
                yield False
                continue
            if self.is_over:
                return
            self._changed.clear()
            yield True
            await asyncio.sleep(tuning.CHANGE_PAUSE.total_seconds())


class ChangeFeed:
    """Watches pulsed while at least one page listens."""

    def __init__(self, client: pulse.Pulse) -> None:
        self._client = client
        self._listeners: set[Listener] = set()
        self._watch: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def listening(self, job_id: str | None) -> Iterator[Listener]:
        listener = Listener(job_id)
        self._listeners.add(listener)
        if self._watch is None:
            self._watch = asyncio.create_task(self._follow())
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._watch is not None:
                self._watch.cancel()
                self._watch = None

    async def close(self) -> None:
        """End every page's stream."""
        for listener in self._listeners:
            listener.end()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _follow(self) -> None:
        # Without permission or server there are no events: pages also refresh by themselves.
        while True:
            with contextlib.suppress(pulse.PulseError):
                async for news in self._client.watch(progress=True, timeout=tuning.CALL_TIMEOUT):
                    for listener in self._listeners:
                        listener.notify(news)
            await asyncio.sleep(tuning.WATCH_RETRY.total_seconds())
