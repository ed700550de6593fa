"""Outages of pulsed: calls fail fast while it does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pulse.errors import ClientClosed, PulseError, Unavailable
from pulse.wire.connection import Connection
from pulse.wire.endpoint import Endpoint

Response = TypeVar("Response")

# After a failure calls fail at once for this long; then one call tries again. gRPC itself
# reconnects at least this often.
REST_SECONDS = 1.0


class Outage:
    """Bounds calls while pulsed does not answer, and fails them at once right after a failure.

    Without a connection a call gets `seconds` instead of its timeout. Once a call has failed, an outage
    begins: further calls fail without being sent, except for one at a time that tries again. Any answer
    ends it.
    """

    def __init__(self, endpoint: Endpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._reason: str | None = None
        self._rests_until = 0.0
        self._is_trying = False

    async def bounded(
        self,
        timeout_seconds: float,
        connection: Connection,
        call: Callable[[float], Coroutine[Any, Any, Response]],
    ) -> Response:
        """Make the call with the time that it has. Raises Unavailable at once during an outage."""
        if self._reason is None:
            seconds = timeout_seconds if connection.is_ready else self._least(timeout_seconds)
            return await self._observed(call(seconds))
        if self._is_trying or time.monotonic() < self._rests_until:
            raise Unavailable(
                f"pulsed at {self._endpoint.address} did not answer a moment ago, so this call was not "
                f"sent. Calls try again {REST_SECONDS:.0f} s after a failure. The failure was: {self._reason}"
            )
        self._is_trying = True
        try:
            return await self._observed(call(self._least(timeout_seconds)))
        finally:
            self._is_trying = False

    def _least(self, timeout_seconds: float) -> float:
        return min(timeout_seconds, self._seconds)

    async def _observed(self, call: Coroutine[Any, Any, Response]) -> Response:
        try:
            response = await call
        except Unavailable as error:
            self._reason = error.message
            self._rests_until = time.monotonic() + REST_SECONDS
            raise
        except ClientClosed:
            raise
        except PulseError:
            self._reason = None  # pulsed has answered
            raise
        self._reason = None
        return response
