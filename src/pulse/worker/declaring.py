"""Declares the schedules of a worker and the settings of its topics when it connects.

The server applies them also when no worker is connected: after a lost lease, and to jobs of other programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import grpc
import grpc.aio

from pulse import tuning
from pulse.error_text import in_a_line
from pulse.errors import InternalError, PulseError, ResourceExhausted, Unavailable
from pulse.handlers.handler import Handler, HandlerOptions
from pulse.supervision.supervised import Lifeline, Unsupervised
from pulse.topic_settings import Backoff, Entries
from pulse.topics import entries_message
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff as Tries

logger = logging.getLogger("pulse.worker")

# Of the later tries of a declaration. A server that is gone is noticed by the connection.
LONGEST_TRY_SECONDS = 60.0

# Errors that a later try may not meet.
_TEMPORARY = (Unavailable, InternalError, ResourceExhausted)


class TopicDeclarations:
    """Declares the settings of the worker's topics once it is connected, before its first job.

    Declares limits again each time the worker reconnects.
    """

    def __init__(
        self,
        connection: Connection,
        worker_id: str,
        handlers: Sequence[Handler],
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """`ended` gets the task of each later declaration."""
        self._connection = connection
        self._worker_id = worker_id
        self._handlers = handlers
        self._ended = ended
        self.in_force = asyncio.Event()
        """Set once all settings are declared."""
        self._has_limits = any(handler.options.limits for handler in handlers)
        self._again: asyncio.Task[None] | None = None

    async def declare(self) -> None:
        """Declare all settings. Raises a PulseError if the server refuses them."""
        await declare_topics(self._connection, self._worker_id, self._handlers)
        self.in_force.set()

    @property
    def are_awaited(self) -> bool:
        """Whether no job may start yet, because a handler has limits that are not in force."""
        return self._has_limits and not self.in_force.is_set()

    def welcomed(self) -> None:
        """The worker is connected, for the first time or again."""
        if self._has_limits and self.in_force.is_set():
            # The servers forget the limits of a worker that was away for long.
            self.close()
            self._again = asyncio.create_task(self.declare(), name="pulse-declare")
            self._again.add_done_callback(self._ended)

    def close(self) -> None:
        """Give up a later declaration that is under way."""
        if self._again is not None:
            self._again.cancel()


async def declare_topics(connection: Connection, worker_id: str, handlers: Sequence[Handler]) -> None:
    """Declare settings; retry until the server answers. A handler without options removes its own.

    Raises a PulseError if the server refuses them. A server of a version without declarations is an
    error only if a handler has limits. Otherwise the worker applies the options that it can, and
    the server its defaults.
    """
    declared = [declared_topic(handler) for handler in handlers]
    for begin in range(0, len(declared), tuning.TOPICS_PER_DECLARATION):
        some = declared[begin : begin + tuning.TOPICS_PER_DECLARATION]
        answer = await _keep_trying(connection, pb.DeclareTopicsRequest(worker_id=worker_id, topics=some))
        if answer is None:
            if limited := [handler.topic for handler in handlers if handler.options.limits]:
                raise PulseError(
                    f"pulsed at {connection.endpoint.address} is of a version without limits, so those of "
                    f"{limited[0]} would not hold: upgrade it, or remove them from the handler."
                )
            if any(map(_declares_something, declared)):
                logger.warning(
                    "pulsed at %s is of a version without settings of topics: upgrade it, so that retries "
                    "and time limits of handlers hold there too.",
                    connection.endpoint.address,
                )
            return
        for replaced in answer.replaced:
            logger.warning(
                "The settings of %s that worker %s declared are replaced by those of worker %s: they differ. "
                "The newest hold; run the same code in all workers of a topic.",
                in_a_line(replaced.topic),
                in_a_line(replaced.declared_by),
                worker_id,
            )


def declared_topic(handler: Handler) -> pb.DeclaredTopic:
    """Return the part of the handler's options that the server applies, for its topic."""
    return pb.DeclaredTopic(topic=handler.topic, entries=entries_message(declared_entries(handler.options)))


def declared_entries(options: HandlerOptions) -> Entries:
    """Return the options that are entries of the settings of a topic."""
    entries = {
        "max_attempts": options.max_attempts,
        # A function decides in the worker. The server could not call it.
        "backoff": options.retry if isinstance(options.retry, Backoff) else None,
        "attempt_timeout": options.timeout,
        **options.limits,
    }
    return {name: value for name, value in entries.items() if value is not None}


def _declares_something(declared: pb.DeclaredTopic) -> bool:
    return bool(declared.entries.ByteSize())


async def _keep_trying(
    connection: Connection, request: pb.DeclareTopicsRequest
) -> pb.DeclareTopicsResponse | None:
    is_logged = False
    seconds = tuning.TRY_TIMEOUT_SECONDS
    async for _ in Tries(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS):
        answer = await _try(connection, request, seconds)
        # With a slow database a declaration of many limits takes longer than a try: no job would start.
        seconds = min(2 * seconds, LONGEST_TRY_SECONDS)
        if not isinstance(answer, PulseError):
            return answer
        # Nothing is missing if nothing is declared; that no server answers is logged by the intake.
        if not is_logged and any(map(_declares_something, request.topics)):
            logger.warning("Topics are not declared yet, trying until they are: %s", answer.message)
            is_logged = True
    return None


async def _try(
    connection: Connection, request: pb.DeclareTopicsRequest, seconds: float
) -> pb.DeclareTopicsResponse | PulseError | None:
    """Declare once. Returns the answer, None if the server has no such RPC, or an error to retry."""
    try:
        return await connection.try_once(connection.stub.DeclareTopics, request, seconds)
    except grpc.aio.AioRpcError as failed:
        if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        error = connection.translate(failed)
        if isinstance(error, _TEMPORARY):
            return error
        raise error from None


class Declaring:
    """Declares schedules and settings, and reports to the supervisor how far the process is."""

    def __init__(
        self,
        connection: Connection,
        schedules: Callable[[Connection], Coroutine[Any, Any, None]],
        topics: TopicDeclarations,
        lifeline: Lifeline | Unsupervised,
    ) -> None:
        """`schedules` declares the schedules of the application."""
        self._connection = connection
        self._schedules = schedules
        self._topics = topics
        self._lifeline = lifeline
        self.welcomed = asyncio.Event()
        """Set once a server has accepted the worker."""

    async def run(self) -> None:
        """Declare all. Raises a PulseError if the server refuses something."""
        # Schedules first: code that the server refuses leaves the settings of the code before it alone. A
        # server that does not answer must not keep handlers with limits from their first job.
        is_declared = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tuning.DECLARE_SECONDS):
                await self._schedules(self._connection)
                is_declared = True
        # Declarations of a worker count once it is connected.
        await self.welcomed.wait()
        await self._topics.declare()
        if not is_declared:
            await self._schedules(self._connection)

    async def announce(self, declaring: asyncio.Task[None]) -> None:
        """Report that the process is connected, and ready once its declarations are accepted."""
        await self.welcomed.wait()
        self._lifeline.send("connected")
        await asyncio.wait({declaring})
        if declaring.exception() is None:
            self._lifeline.send("ready")
