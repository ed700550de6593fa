"""AwaitJobs: a stream on which clients wait for any number of jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.ids import parse_id
from pulse_server.base.loops import TURN_ENTRIES, each_in_turns
from pulse_server.base.sharing import PendingBytes
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.admission import Responses
from pulse_server.doors.boundary import Malformed, Unreadable
from pulse_server.doors.callers import calling_user
from pulse_server.doors.lines import LINES_BYTES, Lines
from pulse_server.jobs import messages
from pulse_server.reads.awaiting import Answer, AwaitedJobs, Waiter

Context = grpc.aio.ServicerContext[Any, Any]

_NO_WAITS = "The server is short of memory and accepts no waits for jobs. Try again in a moment."


class AwaitingRpcs:
    def __init__(self, awaited: AwaitedJobs, responses: Responses, lines: Lines) -> None:
        self._awaited = awaited
        self._responses = responses
        self._lines = lines
        self._pending = PendingBytes(LINES_BYTES)

    async def await_jobs(self, _requests: Any, context: Context) -> None:
        """Send jobs as they finish, until the caller disconnects or all are sent, or the server stops."""
        caller = calling_user() or peer_address(context.peer())
        with self._awaited.waiting(caller) as waiter, self._lines.opened(waiter, _NO_WAITS):
            await context.write(pb.AwaitJobsResponse())
            reading = asyncio.create_task(self._read(waiter, context))
            sending = asyncio.create_task(self._send(waiter, caller, context))
            try:
                await asyncio.wait({reading, sending}, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    reading.result()  # raises the error of a bad request
                    waiter.finish()
                await sending
            finally:
                # Nothing may write once this method has returned: for gRPC the stream is over.
                for task in (reading, sending):
                    task.cancel()
                await asyncio.wait({reading, sending})

    async def _read(self, waiter: Waiter, context: Context) -> None:
        while True:
            await self._pending.wait_below_limit()
            read = await context.read()
            if read is grpc.aio.EOF:
                return
            await self._pending.wait_below_limit()  # other streams may have read since
            size = await read.weigh()
            self._pending.add(size)
            try:
                await _apply(await read.parse(), waiter)
            finally:
                self._pending.remove(size)

    async def _send(self, waiter: Waiter, caller: str, context: Context) -> None:
        async for answer in waiter.answers():
            await self._responses.send(await _message(answer), caller, context)


async def _message(answer: Answer) -> bytes:
    """Return the message as bytes: for a caller that does not read, only these stay in memory."""
    finished = await each_in_turns(messages.job_view, answer.finished)
    return pb.AwaitJobsResponse(finished=finished, missing=answer.missing).SerializeToString()


async def _apply(message: pb.AwaitJobsRequest | Unreadable, waiter: Waiter) -> None:
    if isinstance(message, Unreadable):
        raise Malformed(message)
    for field in ("add", "drop"):
        bounds.check_count(field, len(getattr(message, field)), bounds.MAX_AWAITED_PER_MESSAGE)
    waiter.add(await each_in_turns(lambda one: parse_id(one, "add"), message.add, TURN_ENTRIES))
    waiter.drop(await each_in_turns(lambda one: parse_id(one, "drop"), message.drop, TURN_ENTRIES))
