"""The outbox in the application's Postgres: the statements of the relay and of operators."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pulse_cli import tuning
from pulse_cli.failures import UNAVAILABLE, Failure, Misuse

if TYPE_CHECKING:
    import asyncpg

# No cursor over `number`: it would lose a transaction that commits late, whose numbers are low.
_TAKE = """
WITH taken AS MATERIALIZED (
    SELECT * FROM pulse_outbox.jobs
    WHERE refused_at IS NULL AND number <> ALL($1::bigint[])
    ORDER BY number LIMIT $2 FOR UPDATE SKIP LOCKED
), measured AS (
    SELECT *, sum(octet_length(payload)) OVER (ORDER BY number) - octet_length(payload) AS bytes_before
    FROM taken
)
SELECT *, metadata::text AS metadata_text FROM measured WHERE bytes_before < $3
ORDER BY unique_key IS NOT NULL, number
"""
_BOUND = "SET LOCAL idle_in_transaction_session_timeout = {}"
_DELETE = "DELETE FROM pulse_outbox.jobs WHERE number = ANY($1::bigint[])"
_REFUSE = """
UPDATE pulse_outbox.jobs AS job SET refused_at = clock_timestamp(), refusal = new.refusal
FROM unnest($1::bigint[], $2::text[]) AS new (number, refusal) WHERE job.number = new.number
"""
_STATUS = """
SELECT count(*) FILTER (WHERE refused_at IS NULL) AS waiting, count(refused_at) AS refused,
    min(stored_at) FILTER (WHERE refused_at IS NULL) AS oldest_at,
    clock_timestamp() - min(stored_at) FILTER (WHERE refused_at IS NULL) AS lag
FROM pulse_outbox.jobs
"""
_REFUSED = """
SELECT id::text, topic, key, stored_at, refused_at, refusal FROM pulse_outbox.jobs
WHERE refused_at IS NOT NULL ORDER BY number LIMIT $1
"""
_IS_MEANT = "refused_at IS NOT NULL AND ($1::uuid[] IS NULL OR id = ANY($1))"
_RETRY = (
    f"UPDATE pulse_outbox.jobs SET refused_at = NULL, refusal = NULL WHERE {_IS_MEANT} RETURNING id::text"
)
_DELETE_REFUSED = f"DELETE FROM pulse_outbox.jobs WHERE {_IS_MEANT} RETURNING id::text"


@dataclass(frozen=True, slots=True)
class Status:
    """How many jobs an outbox has, and how long the oldest has been waiting for a relay."""

    waiting: int
    refused: int
    oldest_at: datetime | None
    lag: timedelta | None


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A job that pulsed refused for good."""

    id: str
    topic: str
    key: str | None
    stored_at: datetime
    refused_at: datetime
    refusal: str


class OutboxUnavailable(Failure):
    """The database does not answer, refuses the connection, or has no outbox. A later try may succeed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, UNAVAILABLE)


def outbox_sql() -> str:
    """Return the statements that create the outbox."""
    return files("pulse_cli.outbox").joinpath("outbox.sql").read_text(encoding="utf-8")


class Outbox:
    """A connection to the outbox. Its methods raise OutboxUnavailable."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def install(self) -> None:
        """Create the table and the functions, or replace the functions."""
        with _translated():
            async with self._connection.transaction():
                await self._connection.execute(outbox_sql())

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commit at the end of the block. Rows that `take` returns are locked until then."""
        with _translated():
            # Above it, a row that another relay has deleted would be an error instead of being skipped.
            async with self._connection.transaction(isolation="read_committed"):
                yield

    async def take(self, without: Sequence[int]) -> list[Mapping[str, Any]]:
        """Lock and return the next rows that no other relay has taken; unique jobs last."""
        rows = await self._connection.fetch(
            _TAKE, without, tuning.OUTBOX_BATCH_JOBS, tuning.OUTBOX_BATCH_BYTES
        )
        if rows:
            # The locks of a relay that is frozen, or cut off, end with its session.
            milliseconds = round(tuning.OUTBOX_BATCH_TIMEOUT.total_seconds() * 1500)
            await self._connection.execute(_BOUND.format(milliseconds))
        return list(rows)

    async def settle(self, stored: Sequence[int], refused: Mapping[int, str]) -> None:
        """Delete the rows that pulsed has stored, and record why it refused others."""
        await self._connection.execute(_DELETE, stored)
        if refused:
            await self._connection.execute(_REFUSE, [*refused], [*refused.values()])

    async def status(self) -> Status:
        """Count the jobs."""
        with _translated():
            row = await self._connection.fetchrow(_STATUS)
        assert row is not None
        return Status(**row)

    async def refused(self, limit: int) -> list[RefusedJob]:
        """Return the jobs that pulsed refused, the oldest first."""
        with _translated():
            return [RefusedJob(**row) for row in await self._connection.fetch(_REFUSED, limit)]

    async def retry(self, ids: Sequence[str] | None) -> list[str]:
        """Let relays submit refused jobs again; None: all refused jobs. Returns the ids found."""
        with _translated():
            return [row["id"] for row in await self._connection.fetch(_RETRY, ids)]

    async def delete(self, ids: Sequence[str] | None) -> list[str]:
        """Delete refused jobs; None: all refused jobs. Returns the ids found."""
        with _translated():
            return [row["id"] for row in await self._connection.fetch(_DELETE_REFUSED, ids)]


@contextlib.asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Outbox]:
    """Connect for the length of a block. Raises OutboxUnavailable, or Misuse for a DSN that is none."""
    try:
        import asyncpg
    except ImportError:
        from pulse.installation import how_to_install

        raise Misuse(f"The outbox needs a driver of Postgres. {how_to_install('cli', 'outbox')}") from None
    seconds = tuning.OUTBOX_STATEMENT_TIMEOUT.total_seconds()
    with _translated():
        try:
            connection = await asyncpg.connect(
                dsn,
                timeout=seconds,
                command_timeout=seconds,
                statement_cache_size=0,  # PgBouncer may serve each transaction with another session
                server_settings={"application_name": "pulse outbox"},
            )
        except ValueError:
            # Its own words may have a part of the password.
            raise Misuse(
                "The DSN of the outbox cannot be read: write postgresql://user:password@host:5432/database, "
                "with %40 for an @ in the password."
            ) from None
    try:
        yield Outbox(connection)
    finally:
        with contextlib.suppress(Exception):
            await connection.close(timeout=1)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise the driver's errors as OutboxUnavailable, with what to do."""
    import asyncpg

    try:
        yield
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        raise OutboxUnavailable("This database has no outbox. Create it with: pulse outbox install") from None
    except TimeoutError:
        raise OutboxUnavailable("The database of the outbox did not answer in time.") from None
    except asyncpg.ClientConfigurationError:
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise OutboxUnavailable(f"The database of the outbox cannot be used: {error}") from None
