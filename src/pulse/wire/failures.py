"""gRPC failures as errors of pulse, with sentences that state what to do."""

from __future__ import annotations

import grpc
import grpc.aio

from pulse.errors import DeadlineExceeded, InvalidArgument, PulseError, Unavailable, error_for_code
from pulse.wire.endpoint import Endpoint

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
