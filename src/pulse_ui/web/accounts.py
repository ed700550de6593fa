"""Connects to pulsed under somebody's name."""

from __future__ import annotations

import asyncio
import time

import pulse
from pulse_ui import tuning
from pulse_ui.web.changes import ChangeFeed
from pulse_ui.web.operations import Operations
from pulse_ui.web.sessions import Account


async def connect(server: str | None, user: str = "", password: str = "") -> Account:
    """Return the account, once pulsed has let it in. Raises what the SDK raises, and leaves nothing open."""
    # Not None: that would take name and password from the environment, and every visitor would be that user.
    client = pulse.Pulse(server, user=user, password=password, timeout=tuning.CALL_TIMEOUT)
    try:
        identity = await client.whoami()
    except BaseException:
        await client.close()
        raise
    return Account(client, identity, time.monotonic(), ChangeFeed(client), Operations())


async def refresh_identity(account: Account) -> None:
    """Ask again who this is, if the last answer is old. Raises Unauthenticated when pulsed forgot them."""
    if time.monotonic() - account.identity_checked_at > tuning.IDENTITY_AGE.total_seconds():
        account.identity = await account.client.whoami()
        account.identity_checked_at = time.monotonic()


class OpenAccount:
    """The account that everybody shares on a pulsed that asks nobody, if it is such a one.

    Whether it is may change with a restart of pulsed, so it is asked again as identities are.
    """

    def __init__(self, server: str | None) -> None:
        self._server = server
        self._account: Account | None = None
        self._closed_until = 0.0
        self._asking: asyncio.Task[Account | None] | None = None

    async def get(self) -> Account | None:
        """Return it, or None when pulsed wants a login. Raises what the SDK raises when nobody answers."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        # One answer for all who come at once: of two accounts one would be lost, with the sessions on it.
        # Shielded: whoever leaves takes it from nobody.
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
