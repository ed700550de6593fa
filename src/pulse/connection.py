"""The channel to one pulsed: its options, calls with a deadline and retries, and errors as sentences."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio

from pulse import tuning
from pulse.backoff import Backoff
from pulse.diagnosis import Diagnosis
from pulse.endpoint import Endpoint
from pulse.errors import ClientClosed, DeadlineExceeded, PulseError, Unavailable, error_for_code
from pulse.v1.pulse_pb2_grpc import PulseServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")

_RETRYABLE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # What gRPC's server answers to calls that arrive while it stops. A call that we cancel ourselves ends
    # in a CancelledError, never in this.
    grpc.StatusCode.CANCELLED,
)
# pulsed marks what it says itself; gRPC's own transport failures come under the same codes.
SAID_BY_PULSED = "pulse-answer"
logger = logging.getLogger("pulse")

_warned_of: set[str] = set()


class Connection:
    """A channel to one pulsed. Make it, use it and close it within one running event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        warn_of_plain_text(endpoint)
        options = channel_options(endpoint)
        if endpoint.tls is None:
            self._channel = grpc.aio.insecure_channel(endpoint.target, options)
        else:
            self._channel = grpc.aio.secure_channel(endpoint.target, endpoint.tls.credentials(), options)
        self.stub = PulseServiceStub(self._channel)
        self._diagnosis = Diagnosis(endpoint)
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True once `close` was called: calls that end now end because of it."""
        return self._is_closed

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_seconds: float,
        repeatable: bool = True,
    ) -> Response:
        """Call until an answer comes or the time is up; then raise a PulseError.

        A call that is not repeatable is only tried again when it certainly never left.
        """
        return await self.keep_trying(
            lambda seconds: self.try_once(method, request, seconds), timeout_seconds, repeatable=repeatable
        )

    async def keep_trying(
        self,
        try_once: Callable[[float], Awaitable[Response]],
        timeout_seconds: float,
        *,
        repeatable: bool = True,
    ) -> Response:
        """As `call`, with what makes one try and raises what gRPC raises."""
        deadline = time.monotonic() + timeout_seconds
        task = asyncio.current_task()
        backoff = Backoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS)
        while True:
            if self._is_closed:
                raise ClientClosed("The client was closed during the call.")
            remaining = deadline - time.monotonic()
            try:
                return await try_once(max(remaining, 0.001))
            except grpc.aio.AioRpcError as error:
                wait = backoff.next_seconds()
                may_repeat = error.code() in _RETRYABLE and (repeatable or _never_left(error))
                if not may_repeat or deadline - time.monotonic() <= wait:
                    raise await self.explain(error) from None
                self._find_out_why(error)
            except asyncio.CancelledError:
                if self._is_closed and not (task and task.cancelling()):
                    raise ClientClosed("The client was closed during the call.") from None
                raise
            await asyncio.sleep(wait)

    async def try_once(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_seconds: float = tuning.TRY_TIMEOUT_SECONDS,
    ) -> Response:
        """Call once, with a bound. Raises what gRPC raises."""
        timeout = min(timeout_seconds, tuning.TRY_TIMEOUT_SECONDS)
        return await method(request, timeout=timeout, metadata=self.endpoint.metadata)

    def translate(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's, with what is known so far of its cause."""
        if self._find_out_why(error) and (sentence := self._diagnosis.sentence):
            return Unavailable(sentence)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not is_said_by_pulsed(error):
            return self.out_of_time()
        return translate(
            self.endpoint, error.code(), error.details() or "", is_pulsed=is_said_by_pulsed(error)
        )

    def out_of_time(self) -> PulseError:
        """Return the error for a call that got no answer in time.

        While no connection stands the call never left, and to look for an overload would mislead.
        """
        if self._channel.get_state() is grpc.ChannelConnectivity.READY:
            return no_answer(self.endpoint)
        return nobody_there(self.endpoint)

    async def explain(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's, once its cause was looked for."""
        if self._find_out_why(error):
            await self._diagnosis.finished()
        return self.translate(error)

    def _find_out_why(self, error: grpc.aio.AioRpcError) -> bool:
        """Have a look at the handshake, if it may be what failed. Returns whether it may."""
        may_be_the_handshake = (
            error.code() is grpc.StatusCode.UNAVAILABLE
            and not is_said_by_pulsed(error)
            and _never_left(error)
            and "refused" not in (error.details() or "")
            and not self._is_closed
        )
        if may_be_the_handshake:
            self._diagnosis.begin()
        return may_be_the_handshake

    async def close(self) -> None:
        """Close the channel; calls that are under way fail."""
        self._is_closed = True
        self._diagnosis.close()
        await self._channel.close()
        # gRPC still delivers the ends of cancelled calls to this loop. If it is closed by then, another
        # loop of the process meets them instead, and logs an error for each.
        await asyncio.sleep(tuning.SETTLE_SECONDS)


def is_said_by_pulsed(error: grpc.RpcError) -> bool:
    """True when the sentence is pulsed's own, not gRPC's."""
    metadata = error.trailing_metadata() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    return any(key == SAID_BY_PULSED for key, *_ in metadata or ())


def is_retryable(error: grpc.aio.AioRpcError) -> bool:
    """True when the same call may get an answer a little later."""
    return error.code() in _RETRYABLE


def translate(
    endpoint: Endpoint, code: grpc.StatusCode, details: str, *, is_pulsed: bool = False
) -> PulseError:
    """Return the error that stands for a gRPC status, as a sentence that says what to do."""
    if is_pulsed and details:
        return error_for_code(code.value[0], details)
    if code is grpc.StatusCode.UNAVAILABLE:
        return nobody_there(endpoint)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return no_answer(endpoint)
    if code is grpc.StatusCode.CANCELLED:
        return Unavailable(
            f"pulsed at {endpoint.address} stopped during the call, so this may or may not have happened. "
            "Try again once it is back."
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return PulseError(
            f"What answers at {endpoint.address} does not know this call: it is no pulsed, or an old one."
        )
    return error_for_code(code.value[0], details or f"pulsed at {endpoint.address} answered {code.name}.")


def nobody_there(endpoint: Endpoint) -> Unavailable:
    """Return the error for a call that found nobody to answer it."""
    return Unavailable(
        f"No pulsed answers at {endpoint.address}: is it running? "
        "Start it with `pulsed`, or say where it is with PULSE_ADDR=host:port."
    )


def no_answer(endpoint: Endpoint) -> DeadlineExceeded:
    """Return the error for a call whose answer did not come in time."""
    return DeadlineExceeded(
        f"pulsed at {endpoint.address} did not answer in time, so this may or may not have happened. "
        "Look whether it is overloaded, or give a longer timeout."
    )


def _never_left(error: grpc.aio.AioRpcError) -> bool:
    return (error.details() or "").startswith("failed to connect")


def warn_of_plain_text(endpoint: Endpoint) -> None:
    """Say once per address that a password goes over the network for everyone to read."""
    if (
        endpoint.tls is None
        and endpoint.metadata
        and not endpoint.is_local
        and endpoint.address not in _warned_of
    ):
        _warned_of.add(endpoint.address)
        logger.warning(
            "The password goes to pulsed at %s in plain text: use TLS, with tls=True or PULSE_TLS=on.",
            endpoint.address,
        )


def channel_options(endpoint: Endpoint) -> list[tuple[str, int | str]]:
    """Return the channel options that every connection of the SDK uses."""
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", tuning.MAX_RECEIVE_BYTES),
        ("grpc.keepalive_time_ms", tuning.KEEPALIVE_MILLISECONDS),
        ("grpc.keepalive_timeout_ms", tuning.KEEPALIVE_TIMEOUT_MILLISECONDS),
        ("grpc.keepalive_permit_without_calls", 0),
        # An idle stream sends no data, and its peer may vanish all the same.
        ("grpc.http2.max_pings_without_data", 0),
        # Retries are ours: gRPC's own would repeat calls that may not be repeated.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", tuning.REDIAL_FIRST_MILLISECONDS),
        ("grpc.max_reconnect_backoff_ms", tuning.REDIAL_LONGEST_MILLISECONDS),
        # Heartbeats must not queue behind a full stream: each channel gets a TCP connection of its own.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if endpoint.tls is not None:
        options.append(("grpc.default_authority", endpoint.authority))
    if endpoint.is_local:
        options.append(("grpc.enable_http_proxy", 0))
    return options
