"""Declares the schedules and the policies of a worker when it connects.

The server applies them also when no worker is connected: after a lost lease, and to jobs of other programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from pulse import tuning
from pulse.error_text import in_a_line
from pulse.errors import InternalError, PulseError, ResourceExhausted, Unavailable
from pulse.handlers.handler import Handler
from pulse.handlers.options import Backoff, HandlerOptions
from pulse.models.limits import limit_message
from pulse.supervision.lifeline import Lifeline, Unsupervised
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.backoff import Backoff as Tries
from pulse.wire.connection import Connection

logger = logging.getLogger("pulse.worker")

# Of the later tries of a declaration. A server that is gone is noticed by the connection.
LONGEST_TRY_SECONDS = 60.0

# Errors that a later try may not meet.
_TEMPORARY = (Unavailable, InternalError, ResourceExhausted)


class PolicyDeclarations:
    """Declares the policies of a worker once it is connected, before its first job.

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
        """Set once all policies are declared."""
        self._has_limits = any(handler.options.limits for handler in handlers)
        self._again: asyncio.Task[None] | None = None

    async def declare(self) -> None:
        """Declare all policies. Raises a PulseError if the server refuses them."""
        await declare_policies(self._connection, self._worker_id, self._handlers)
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


async def declare_policies(connection: Connection, worker_id: str, handlers: Iterable[Handler]) -> None:
    """Declare policies; retry until the server answers. A handler without options removes its own.

    Raises a PulseError if the server refuses them. A server of a version without policies is an
    error only if a handler has limits. Otherwise the worker applies the options that it can, and
    the server its defaults.
    """
    declared = [declared_policy(handler) for handler in handlers]
    for begin in range(0, len(declared), tuning.POLICIES_PER_DECLARATION):
        some = declared[begin : begin + tuning.POLICIES_PER_DECLARATION]
        answer = await _keep_trying(
            connection, pb.DeclareTopicPoliciesRequest(worker_id=worker_id, policies=some)
        )
        if answer is None:
            if limited := [each.topic for each in declared if each.HasField("limits")]:
                raise PulseError(
                    f"pulsed at {connection.endpoint.address} is of a version without limits, so those of "
                    f"{limited[0]} would not hold: upgrade it, or remove them from the handler."
                )
            if any(map(_says_anything, declared)):
                logger.warning(
                    "pulsed at %s is of a version without policies of topics: upgrade it, so that retries "
                    "and time limits of handlers hold there too.",
                    connection.endpoint.address,
                )
            return
        for replaced in answer.replaced:
            logger.warning(
                "The policy of %s that worker %s declared is replaced by that of worker %s: they differ. "
                "The newest holds; run the same code in all workers of a topic.",
                in_a_line(replaced.topic),
                in_a_line(replaced.declared_by),
                worker_id,
            )


def declared_policy(handler: Handler) -> pb.DeclaredPolicy:
    """Return the part of the handler's options that the server applies, for its topic."""
    declared = pb.DeclaredPolicy(topic=handler.topic, run=run_policy(handler.options))
    if handler.options.limits:
        declared.limits.CopyFrom(limit_message(handler.options.limits))
    return declared


def _says_anything(declared: pb.DeclaredPolicy) -> bool:
    return bool(declared.run.ByteSize() or declared.limits.ByteSize())


def run_policy(options: HandlerOptions) -> pb.RunPolicy:
    """Return the part of the options that the server applies."""
    run = pb.RunPolicy(max_attempts=options.max_attempts)
    if options.timeout is not None:
        run.timeout.FromTimedelta(options.timeout)
    if isinstance(retry := options.retry, Backoff):
        run.backoff.factor, run.backoff.jitter = retry.factor, retry.jitter
        run.backoff.first.FromTimedelta(retry.first)
        run.backoff.longest.FromTimedelta(retry.longest)
    return run


async def _keep_trying(
    connection: Connection, request: pb.DeclareTopicPoliciesRequest
) -> pb.DeclareTopicPoliciesResponse | None:
    is_logged = False
    seconds = tuning.TRY_TIMEOUT_SECONDS
    async for _ in Tries(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS):
        answer = await _try(connection, request, seconds)
        # With a slow database a declaration of many limits takes longer than a try: no job would start.
        seconds = min(2 * seconds, LONGEST_TRY_SECONDS)
        if not isinstance(answer, PulseError):
            return answer
        # Nothing is missing if nothing is declared; that no server answers is logged by the intake.
        if not is_logged and any(map(_says_anything, request.policies)):
            logger.warning("Policies are not declared yet, trying until they are: %s", answer.message)
            is_logged = True
    return None


async def _try(
    connection: Connection, request: pb.DeclareTopicPoliciesRequest, seconds: float
) -> pb.DeclareTopicPoliciesResponse | PulseError | None:
    """Declare once. Returns the answer, None if the server has no policies, or an error to retry."""
    try:
        return await connection.try_once(connection.stub.DeclareTopicPolicies, request, seconds)
    except grpc.aio.AioRpcError as failed:
        if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        error = connection.translate(failed)
        if isinstance(error, _TEMPORARY):
            return error
        raise error from None


class Declaring:
    """Declares schedules and policies, and reports to the supervisor how far the process is."""

    def __init__(
        self,
        connection: Connection,
        schedules: Callable[[Connection], Coroutine[Any, Any, None]],
        policies: PolicyDeclarations,
        lifeline: Lifeline | Unsupervised,
    ) -> None:
        """`schedules` declares the schedules of the application."""
        self._connection = connection
        self._schedules = schedules
        self._policies = policies
        self._lifeline = lifeline
        self.welcomed = asyncio.Event()
        """Set once a server has accepted the worker."""

    async def run(self) -> None:
        """Declare all. Raises a PulseError if the server refuses something."""
        # Schedules first: code that the server refuses leaves the policies of the code before it alone. A
        # server that does not answer must not keep handlers with limits from their first job.
        is_declared = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tuning.DECLARE_SECONDS):
                await self._schedules(self._connection)
                is_declared = True
        # Declarations of a worker count once it is connected.
        await self.welcomed.wait()
        await self._policies.declare()
        if not is_declared:
            await self._schedules(self._connection)

    async def announce(self, declaring: asyncio.Task[None]) -> None:
        """Report that the process is connected, and ready once its declarations are accepted."""
        await self.welcomed.wait()
        self._lifeline.send("connected")
        await asyncio.wait({declaring})
        if declaring.exception() is None:
            self._lifeline.send("ready")
