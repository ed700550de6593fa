"""Refused calls, and what their answers must not contain."""

from typing import Any

import grpc
import pytest

LEAKS = ("Traceback", "asyncpg", "SELECT", "UPDATE", "INSERT", "pulse.jobs", "line ", "relation", "File ")


async def refusal_of(call: Any) -> grpc.aio.AioRpcError:
    """Return the error of the call; for a stream, before its first message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if isinstance(call, grpc.aio.UnaryStreamCall) else call)
    assert not [word for word in LEAKS if word in str(caught.value.details())]
    return caught.value
