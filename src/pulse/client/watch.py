"""Sees jobs change as it happens: one stream, opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import PulseError
from pulse.models.transitions import Transitions, transitions
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.backoff import Backoff
from pulse.wire.connection import Connection
from pulse.wire.failures import is_retryable


async def watch_jobs(
    connection: Connection, request: pb.WatchJobsRequest, timeout_seconds: float
) -> AsyncGenerator[Transitions, None]:
    """Yield what happens, until closed. `timeout_seconds` bounds the wait for the first welcome only.

    Raises a PulseError if no server answers at first, and later if one refuses this caller for good.
    """
    deadline = time.monotonic() + timeout_seconds
    backoff = Backoff(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS)
    was_welcomed = False
    while True:
        opened_at = time.monotonic()
        reason: PulseError | None = None
        call = connection.open_stream(connection.stub.WatchJobs, request)
        try:
            message = await _welcome(connection, call, None if was_welcomed else deadline)
            if isinstance(message, pb.WatchJobsResponse):
                yield transitions(message, interrupted=was_welcomed)
                was_welcomed = True
            while isinstance(message := await connection.read(call), pb.WatchJobsResponse):
                yield transitions(message)
        except grpc.aio.AioRpcError as error:
            if not is_retryable(error):
                raise await connection.explain(error) from None
            if not was_welcomed:
                reason = await connection.explain(error)
        except TimeoutError:
            reason = connection.out_of_time()
        finally:
            call.cancel()
        # A server that dies soon after each welcome is not one to hurry back to.
        if time.monotonic() - opened_at > tuning.RECONNECT_LONGEST_SECONDS:
            backoff.reset()
        wait = backoff.next_seconds()
        if not was_welcomed and time.monotonic() + wait >= deadline:
            raise (reason or connection.out_of_time()) from None
        await asyncio.sleep(wait)


async def _welcome(
    connection: Connection,
    call: grpc.aio.UnaryStreamCall[pb.WatchJobsRequest, pb.WatchJobsResponse],
    deadline: float | None,
) -> object:
    seconds = tuning.WELCOME_TIMEOUT_SECONDS
    if deadline is not None:
        seconds = min(seconds, max(deadline - time.monotonic(), 0.001))
    # Not wait_for: before Python 3.12 it swallows a cancellation that meets the welcome.
    async with asyncio.timeout(seconds):
        return await connection.read(call)
