"""Callers with credentials, and the users of the tests."""

import base64
from functools import partial
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.access.users import Role, User

PASSWORD = "tweety-4711"
USERS = tuple(User(role.value, PASSWORD, role) for role in Role)
"""One user per role, named after it."""

METHODS = pb.DESCRIPTOR.services_by_name["PulseService"].methods


def basic(user: str, password: str = PASSWORD) -> tuple[tuple[str, str], ...]:
    """Return the metadata with the credentials."""
    return (("authorization", f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"),)


class CallerWith:
    """A stub that sends this metadata with every call."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._stub = PulseServiceStub(channel)
        self._metadata = metadata

    def __getattr__(self, method: str) -> Any:
        return partial(getattr(self._stub, method), metadata=self._metadata)


def caller(channel: grpc.aio.Channel, user: str, password: str = PASSWORD) -> Any:
    return CallerWith(channel, basic(user, password))


async def answer(caller: Any, method: str, request: Any = None) -> tuple[grpc.StatusCode, str]:
    """Call the method with an empty request, or this one. Returns the status and its sentence.

    A stream that sends its first message counts as OK. One that takes messages gets none.
    """
    described = pb.DESCRIPTOR.services_by_name["PulseService"].methods_by_name[method]
    request = request if request is not None else getattr(pb, described.input_type.name)()
    call = getattr(caller, method)() if described.client_streaming else getattr(caller, method)(request)
    try:
        if described.client_streaming:
            # Nothing is written: gRPC would report the failed write instead of the refusal.
            await call.done_writing()
        if described.server_streaming:
            message = await call.read()
            if message is grpc.aio.EOF:
                return await call.code(), await call.details()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        refusal = error
    else:
        return grpc.StatusCode.OK, ""
    assert ("pulse-answer", "1") in tuple(refusal.trailing_metadata() or ()), "the sentence is pulsed's own"
    return refusal.code(), refusal.details() or ""
