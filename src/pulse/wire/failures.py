"""What gRPC says when a call fails, as errors of pulse: sentences that say what to do."""

from __future__ import annotations

import grpc
import grpc.aio

from pulse.errors import DeadlineExceeded, PulseError, Unavailable, error_for_code
from pulse.wire.endpoint import Endpoint

# pulsed marks what it says itself; gRPC's own transport failures come under the same codes.
SAID_BY_PULSED = "pulse-answer"

_RETRYABLE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # What gRPC's server answers to calls that arrive while it stops. A call that we cancel ourselves ends
    # in a CancelledError, never in this.
    grpc.StatusCode.CANCELLED,
)


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


def never_left(error: grpc.aio.AioRpcError) -> bool:
    """True when no connection came about, so that the server certainly knows nothing of the call."""
    return (error.details() or "").startswith("failed to connect")
