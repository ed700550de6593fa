"""`Context.complete`: a handler completes its job in its own transaction. ADR-0075"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

from pulse.connections import Statement, fetch, fetch_async, is_async
from pulse.errors import InvalidArgument
from pulse.handlers.step_verbs import StepVerbs, returned
from pulse.payload import encode_result
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.redirection import check_database

_COMPLETE = "SELECT pulse.complete_job($1::text::uuid, $2::text, $3::integer, $4::bytea, $5::bytea)"
_TOKEN_BYTES = 16


class TransactionVerbs(StepVerbs):
    """What a handler can do to complete its job with its rows."""

    __slots__ = ("_completes_in_transaction", "_on_complete")

    _completes_in_transaction: bool
    _on_complete: Callable[[], None]  # unset outside of child processes

    def complete(self, connection: Any, result: object = None) -> Coroutine[Any, Any, None]:
        """Complete the job in the transaction of this connection: `await ctx.complete(connection)`.

        Call it last, then commit: the job is completed exactly if your rows are stored. It takes the
        connections that `pulse.sql.enqueue` takes. Raises ClaimLost if the job is no longer held here,
        AlreadyCompleted if an earlier transaction of this run was committed, and InvalidArgument outside of a
        transaction. From this call on the handler's return no longer completes the job: without a commit the
        attempt has failed. Give the `result` of the job here; what the handler returns is dropped. After a
        rollback it may be called again. In a `def` handler it blocks, without `await`. In a unit test it does
        nothing.
        """
        key: pb.CompletionKey | None = getattr(self._steps, "completion_key", None)
        if key is None:
            return returned(None)  # type: ignore[no-any-return]
        # First: if the handler forgets to await, or catches the error and returns, the attempt has failed.
        self._completes_in_transaction = True
        if (pass_on := getattr(self, "_on_complete", None)) is not None:
            pass_on()
        check_database()
        claim, encoded = self._assignment, None if result is None else encode_result(result)
        values = [claim.job_id, key.worker, claim.run, token_of(key.key, claim), encoded]
        statement = Statement(_COMPLETE, values, "ctx.complete", needs_transaction=True)
        if not is_async(connection):
            fetch(connection, statement)
            return returned(None)  # type: ignore[no-any-return]
        if asyncio._get_running_loop() is None:
            raise InvalidArgument(
                "ctx.complete was given an async connection in a `def` handler, which cannot await it: write "
                "`async def`, or use a connection that blocks."
            )
        return _complete(connection, statement)


async def _complete(connection: Any, statement: Statement) -> None:
    await fetch_async(connection, statement)


def token_of(key: bytes, claim: pb.JobAssignment) -> bytes | None:
    """What proves to the database that this worker was sent the claim. None: the server has sent no key."""
    return sha256(key + f"{claim.job_id}:{claim.run}".encode()).digest()[:_TOKEN_BYTES] if key else None


def completes_in_transaction(context: TransactionVerbs) -> bool:
    """True once the handler has called `ctx.complete`: no report completes its job. Safe in any thread."""
    return context._completes_in_transaction


def set_completes_in_transaction(context: TransactionVerbs) -> None:
    """Take over that the handler has called `ctx.complete` in another process."""
    context._completes_in_transaction = True


def on_complete(context: TransactionVerbs, call: Callable[[], None]) -> None:
    """Have the function called before the handler completes its job, in the thread of the handler."""
    context._on_complete = call
