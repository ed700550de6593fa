"""One fuzzing client: it sends inputs over its connection, and reports what is wrong with the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from faults.fuzzing.acquaintances import Acquaintances
from faults.fuzzing.answers import Answer
from faults.fuzzing.contract import BY_PATH
from faults.fuzzing.inputs import Call, Input
from faults.fuzzing.judging import complaints, complaints_about_wire
from faults.fuzzing.neighbor import Neighbor
from faults.fuzzing.sending import PATIENCE_SECONDS, channel_to, send_call, send_wire
from faults.fuzzing.tally import Tally

Result = TypeVar("Result")
Login = tuple[tuple[str, str], ...]


class Run(Protocol):
    """Runs a coroutine to its end: Hypothesis calls functions, not coroutines."""

    def __call__(self, awaited: Awaitable[Result]) -> Result: ...


_LARGEST_ANSWER_HEARD = 64 * 1024


class ServerGone(BaseException):
    """The server is gone. A BaseException: Hypothesis would otherwise go on, and shrink without a server."""

    def __init__(self, volley: Sequence[Input]) -> None:
        lines = "\n    ".join(map(repr, volley))
        super().__init__(f"the server has gone; what was sent last:\n    {lines}")


class Client:
    """Sends volleys: inputs at the same time, with an ordinary call beside them."""

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        own: grpc.aio.Channel,
        known: Acquaintances,
        login: Login,
    ) -> None:
        self.tally = Tally()
        self._address = address
        self._channel = channel
        self._known = known
        self._is_guarded = bool(login)
        self._neighbor = Neighbor(own, login)

    async def shoot(self, volley: Sequence[Input]) -> list[str]:
        """Send them all at once. Returns what is wrong with the answers."""
        found = [
            complaint
            for answered in await asyncio.gather(*map(self._send, volley), self._neighbor.call())
            for complaint in answered
        ]
        self.tally.well_formed += 1
        if found and not await self._is_alive():
            raise ServerGone(volley)
        return found

    async def look_after(self) -> list[str]:
        """Return what is wrong with the server between two rounds: it must be healthy, and run jobs."""
        if not await self._is_alive():
            raise ServerGone(())
        self._known.turn_page()
        return await self._neighbor.run_a_job()

    async def _send(self, one: Input) -> list[str]:
        if not isinstance(one, Call):
            try:
                reaction = await send_wire(self._address, one)
            except OSError as error:
                return [f"its connection was not accepted: {error}"]
            self.tally.count_wire(one, reaction)
            return complaints_about_wire(reaction)
        answer = await send_call(self._channel, one)
        self.tally.count_call(one, answer)
        self._hear(one, answer)
        return complaints(one, answer, guarded=self._is_guarded)

    def _hear(self, call: Call, answer: Answer) -> None:
        rpc = BY_PATH.get(call.path)
        if rpc is None or sum(map(len, answer.messages)) > _LARGEST_ANSWER_HEARD:
            return
        try:
            asked = rpc.request.FromString(call.messages[0]) if call.messages else rpc.request()
            heard = [rpc.response.FromString(encoded) for encoded in answer.messages]
        except (DecodeError, ValueError, RecursionError):
            return
        self._known.hear(heard, getattr(asked, "worker_id", ""))

    async def _is_alive(self) -> bool:
        check = Call("/grpc.health.v1.Health/Check")
        async with channel_to(self._address) as channel:
            answer = await send_call(channel, check)
        serving = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        return answer.messages == (serving.SerializeToString(),)


@contextmanager
def running_client(address: str, known: Acquaintances, login: Login = ()) -> Iterator[tuple[Client, Run]]:
    """A client, and what runs it."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> Client:
            # Two connections: what breaks the one must not affect the neighbor.
            bad = await stack.enter_async_context(channel_to(address))
            good = await stack.enter_async_context(channel_to(address))
            return Client(address, bad, good, known, login)

        async def bounded(awaited: Awaitable[Result]) -> Result:
            async with asyncio.timeout(4 * PATIENCE_SECONDS):
                return await awaited

        def run(awaited: Awaitable[Result]) -> Result:
            return runner.run(bounded(awaited))

        try:
            yield run(start()), run
        finally:
            run(stack.aclose())
