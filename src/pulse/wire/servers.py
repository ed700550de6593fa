"""The servers of one client: their channels, their failures, and which of them calls go to.

A call or stream that gRPC ends moves the client to the next server; an error that pulsed writes does not,
because the server is there. gRPC's own lists of addresses take IP addresses and one name for all
certificates, and its round robin would spread a worker's calls over servers. docs/figures.md#several-servers

gRPC failures become errors of pulse, with sentences that state what to do. All that tries again waits by one
jittered exponential backoff.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import time
from collections.abc import Callable
from random import uniform
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import (
    ClientClosed,
    DeadlineExceeded,
    InvalidArgument,
    PulseError,
    Unavailable,
    error_for_code,
)
from pulse.quiet import refuse_gevent
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse.wire.endpoint import Endpoint

if TYPE_CHECKING:
    from pulse.v1.pulse_pb2_grpc import PulseServiceAsyncStub

# pulsed marks its own answers; gRPC's transport failures have the same codes.
FROM_PULSED = "pulse-answer"

_RETRYABLE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # The answer of a gRPC server that is stopping. A call that this client cancels raises CancelledError.
    grpc.StatusCode.CANCELLED,
)


def is_from_pulsed(error: grpc.RpcError) -> bool:
    """True if pulsed wrote the message, not gRPC."""
    metadata = error.trailing_metadata() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    return any(key == FROM_PULSED for key, *_ in metadata or ())


def is_retryable(error: grpc.aio.AioRpcError) -> bool:
    """True if a retry of the call may succeed."""
    return error.code() in _RETRYABLE


def is_refused_for_now(error: grpc.aio.AioRpcError) -> bool:
    """True when pulsed has no room for the call now. Under gRPC's own sentence a message is too large."""
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and is_from_pulsed(error)


def is_ended_for_now(error: grpc.aio.AioRpcError) -> bool:
    """True when pulsed has no room for a stream of messages now, or does not say why it ended.

    If a message met the end of its stream, gRPC hides the server's answer.
    """
    is_hidden = error.code() is grpc.StatusCode.INTERNAL and error.details() == "Internal error from Core"
    return is_hidden or is_refused_for_now(error)


def translate(
    endpoint: Endpoint, code: grpc.StatusCode, details: str, *, is_pulsed: bool = False
) -> PulseError:
    """Return the error for a gRPC status, with a sentence that states what to do."""
    if is_pulsed and details:
        return error_for_code(code.value[0], details)
    if code is grpc.StatusCode.UNAVAILABLE:
        return unreachable(endpoint)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "message larger than max" in details:
        return InvalidArgument(
            f"A message of this call is too large: pulsed at {endpoint.address} takes up to 4 MiB. "
            "Send less at a time, or store large data elsewhere and send a reference to it."
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return no_answer(endpoint)
    if code is grpc.StatusCode.CANCELLED:
        return Unavailable(
            f"pulsed at {endpoint.address} stopped during the call, so this may or may not have happened. "
            "Try again once it is back."
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return PulseError(
            f"The server at {endpoint.address} does not know this call: it is not pulsed, or an old one."
        )
    return error_for_code(code.value[0], details or f"pulsed at {endpoint.address} answered {code.name}.")


def unreachable(endpoint: Endpoint) -> Unavailable:
    """Return the error for a call that could not connect."""
    return Unavailable(
        f"No pulsed answers at {endpoint.address}: is it running? "
        "Start it with `pulsed`, or give its address with PULSE_ADDR=host:port."
    )


def no_answer(endpoint: Endpoint) -> DeadlineExceeded:
    """Return the error for a call without an answer in time."""
    return DeadlineExceeded(
        f"pulsed at {endpoint.address} did not answer in time, so this may or may not have happened. "
        "Check whether it is overloaded, or give a longer timeout."
    )


def was_never_sent(error: grpc.aio.AioRpcError) -> bool:
    """True if there was no connection, so that the call has certainly not reached the server."""
    return (error.details() or "").startswith("failed to connect")


class JitteredBackoff:
    """Waits that double from the first to the longest, each drawn at random from its upper half.

    The jitter spreads a fleet of clients that lost its server at one instant.

    `async for _ in JitteredBackoff(…)` makes one pass for each try and waits between two tries. It ends
    when the next try would begin at `deadline` or later, by `time.monotonic()`.
    """

    __slots__ = ("_deadline", "_first_seconds", "_is_begun", "_longest_seconds", "_tries")

    def __init__(self, first_seconds: float, longest_seconds: float, deadline: float = math.inf) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._deadline = deadline
        self._tries = 0
        self._is_begun = False

    def next_seconds(self) -> float:
        """Return how long to wait before the next try."""
        # The exponent is capped so that a year of failures does not overflow a float.
        ceiling = min(self._longest_seconds, self._first_seconds * 2 ** min(self._tries, 32))
        self._tries += 1
        return uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        """Begin again with the first wait."""
        self._tries = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            return
        wait_seconds = self.next_seconds()
        if self._deadline - time.monotonic() <= wait_seconds:
            raise StopAsyncIteration
        await asyncio.sleep(wait_seconds)


logger = logging.getLogger("pulse")

_warned_about: set[str] = set()
_used_in: int | None = None


def open_channel(endpoint: Endpoint) -> grpc.aio.Channel:
    """Open a channel that belongs to the running event loop. Raises ClientClosed in a forked child."""
    _check_process()
    _warn_about_plain_text(endpoint)
    options = _options(endpoint)
    if endpoint.tls is None:
        return grpc.aio.insecure_channel(endpoint.target, options)
    return grpc.aio.secure_channel(endpoint.target, endpoint.tls.credentials(), options)


def open_blocking_channel(endpoint: Endpoint) -> grpc.Channel:
    """Open a channel for blocking calls, from any thread. Raises ClientClosed in a forked child."""
    _check_process()
    options = _options(endpoint)
    if endpoint.tls is None:
        return grpc.insecure_channel(endpoint.target, options)
    return grpc.secure_channel(endpoint.target, endpoint.tls.credentials(), options)


def refuse_forked_child() -> None:
    """Raise ClientClosed where gRPC would hang: in a child that was forked after its first use."""
    if _used_in not in (None, os.getpid()):
        raise ClientClosed(
            "This process was forked after a client was used, and gRPC does not work in such a child. Start "
            'it with multiprocessing.get_context("spawn") or subprocess, or fork before the first call.'
        )


def _check_process() -> None:
    """Raise ClientClosed where gRPC does not work. From here on this process has used it."""
    global _used_in
    refuse_forked_child()
    _used_in = os.getpid()
    try:
        refuse_gevent()
    except ImportError as error:
        raise ClientClosed(str(error)) from None


def _options(endpoint: Endpoint) -> list[tuple[str, int | str]]:
    ping, ping_timeout = tuning.KEEPALIVE_MILLISECONDS, tuning.KEEPALIVE_TIMEOUT_MILLISECONDS
    if endpoint.has_others:
        ping = ping_timeout = tuning.KEEPALIVE_OF_SEVERAL_MILLISECONDS
    options: list[tuple[str, int | str]] = [
        ("grpc.keepalive_time_ms", ping),
        ("grpc.keepalive_timeout_ms", ping_timeout),
        # Decides alone in newer versions of gRPC, and is 60 s unless it is set.
        ("grpc.http2.ping_timeout_ms", ping_timeout),
        ("grpc.keepalive_permit_without_calls", 0),
        # An idle stream sends no data; its peer can vanish nevertheless.
        ("grpc.http2.max_pings_without_data", 0),
        # gRPC's own retries would repeat calls that must not be repeated.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", tuning.REDIAL_FIRST_MILLISECONDS),
        ("grpc.max_reconnect_backoff_ms", tuning.REDIAL_LONGEST_MILLISECONDS),
        # A TCP connection for each channel: heartbeats must not queue behind a full stream.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if endpoint.has_others:
        # The time for a connection to be made: 20 s unless it is set.
        options.append(("grpc.min_reconnect_backoff_ms", tuning.CONNECT_OF_SEVERAL_MILLISECONDS))
    if endpoint.tls is not None:
        options.append(("grpc.default_authority", endpoint.authority))
    if endpoint.is_local:
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _warn_about_plain_text(endpoint: Endpoint) -> None:
    """Log once per address that a password is sent over the network unencrypted."""
    if (
        endpoint.tls is None
        and endpoint.metadata
        and not endpoint.is_local
        and endpoint.address not in _warned_about
    ):
        _warned_about.add(endpoint.address)
        logger.warning(
            "The password goes to pulsed at %s in plain text: use TLS, with tls=True or PULSE_TLS=on.",
            endpoint.address,
        )


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
        self._rest = JitteredBackoff(tuning.HOME_FIRST_SECONDS, tuning.HOME_LONGEST_SECONDS)
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
