"""The servers of one client: the one that calls go to, and when calls go to another one.

A call or stream that gRPC ends moves the client to the next server; an error that pulsed writes does
not, because the server is there. gRPC's own lists of addresses take IP addresses and one name for all
certificates, and its round robin would spread a worker's calls over servers.
docs/figures.md#several-servers
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from pulse import tuning
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse.wire.backoff import Backoff
from pulse.wire.endpoint import Endpoint
from pulse.wire.failures import is_from_pulsed

if TYPE_CHECKING:
    from pulse.v1.pulse_pb2_grpc import PulseServiceAsyncStub

logger = logging.getLogger("pulse")

# A server that is connected and does not answer a call for this long is away. A whole try takes longer.
_HUNG_SECONDS = 4.0
_READY = grpc.ChannelConnectivity.READY
_DIALING = (grpc.ChannelConnectivity.CONNECTING, grpc.ChannelConnectivity.TRANSIENT_FAILURE)


class Servers:
    """A channel to each server of an endpoint. Belongs to one event loop.

    All calls go to one server, since a worker's stream and its reports belong together. The order of the
    servers is random: its first one is the home of this client, so that clients spread evenly. A client
    whose server is away goes to the next one, and back home once its home can be reached.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        open_channel: Callable[[Endpoint], grpc.aio.Channel],
        moved: Callable[[], None],
    ) -> None:
        """`moved` is called whenever calls begin to go to another server."""
        each = endpoint.each
        self._each = random.sample(each, len(each))
        self._channels = [open_channel(one) for one in self._each]
        self._moved = moved
        self.at = 0
        """The place of the server in use. 0 is home."""
        channel: Any = self._channels[0] if len(each) == 1 else _Switch(self, self._channels)
        self.stub: PulseServiceAsyncStub = PulseServiceStub(channel)
        self.was_dialing = False
        """Whether a server could not be reached when the channels were closed."""
        self.stays = False
        """Set: only `go_home` leads home, so that a worker can end its stream before."""
        self._rest = Backoff(tuning.HOME_FIRST_SECONDS, tuning.HOME_LONGEST_SECONDS)
        self._home_since = time.monotonic()
        self._home_from = 0.0
        self._logged: set[int] = set()  # away, and logged as such

    @property
    def in_use(self) -> Endpoint:
        """The server that calls go to."""
        return self._each[self.at]

    @property
    def are_several(self) -> bool:
        return len(self._each) > 1

    @property
    def is_ready(self) -> bool:
        """True while there is a connection to the server in use."""
        return self._channels[self.at].get_state() is _READY

    def choose(self) -> int:
        """Return the place of the server for the next call."""
        if self.at in self._logged and self.is_ready:
            self._logged.discard(self.at)
        if self.at and not self.stays and self.may_go_home():
            self.go_home()
        return self.at

    def may_go_home(self) -> bool:
        """True if this client is away from home, and home can be reached. Tries to connect."""
        return (
            self.at != 0
            and time.monotonic() >= self._home_from
            and self._channels[0].get_state(try_to_connect=True) is _READY
        )

    def go_home(self) -> None:
        """Let calls go to the home server again."""
        logger.info("pulsed at %s is back: calls go there again.", self._each[0].address)
        self._move(0)

    def failed(self, at: int, error: grpc.aio.AioRpcError, seconds: float = 0.0) -> None:
        """Go to the next server, if the error of a call that was given `seconds` shows that this one is away.

        Errors that pulsed wrote do not: it is there.
        """
        if at != self.at or not self.are_several or is_from_pulsed(error):
            return
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            # A short timeout shows nothing about a server that is connected.
            if seconds < _HUNG_SECONDS and self.is_ready:
                return
        elif error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            return
        # Of "failed to connect to all addresses; last error: …: Connection refused", the last words.
        self.leave(at, (error.details() or error.code().name).rpartition("remote host: ")[2])

    def leave(self, at: int, reason: str) -> None:
        """Go to the next server, unless this is done already. Logs it once, until this one is connected."""
        if at != self.at or not self.are_several:
            return
        if at not in self._logged:
            self._logged.add(at)
            other = self._each[(at + 1) % len(self._each)]
            logger.warning(
                "pulsed at %s is away, so calls go to %s: %s", self._each[at].address, other.address, reason
            )
        self._move((at + 1) % len(self._each))

    def _move(self, to: int) -> None:
        now = time.monotonic()
        if self.at == 0:
            # A server that dies again soon after each start gets growing waits.
            if now - self._home_since > tuning.HOME_LONGEST_SECONDS:
                self._rest.reset()
            self._home_from = now + self._rest.next_seconds()
        elif to == 0:
            self._home_since = now
        self.at = to
        self._moved()

    async def close(self) -> None:
        """Close the channels. Calls in flight fail."""
        self.was_dialing = any(channel.get_state() in _DIALING for channel in self._channels)
        for channel in self._channels:
            await channel.close()


class _Switch:
    """Has the methods of a channel that make stubs. Each call goes over the channel in use."""

    def __init__(self, servers: Servers, channels: list[grpc.aio.Channel]) -> None:
        self._servers = servers
        self._channels = channels

    def __getattr__(self, kind: str) -> Any:
        makers = [getattr(channel, kind) for channel in self._channels]

        def make(*args: Any, **options: Any) -> Any:
            methods = [maker(*args, **options) for maker in makers]
            servers = self._servers
            return lambda *args, **options: methods[servers.at](*args, **options)

        return make
