"""Connections to pulsed as a user."""

from __future__ import annotations

import asyncio
import time

import pulse
from pulse_ui import tuning
from pulse_ui.web.changes import ChangeFeed
from pulse_ui.web.operations import Operations
from pulse_ui.web.sessions import Account


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
