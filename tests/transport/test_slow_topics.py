"""Claims of a topic that wait in the database delay no other topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from tests.transport.pulse_server_under_test import SECOND, server_under_test


@pytest.fixture
async def slow_topic(database_dsn: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Claims of the topic "slow" wait in the database, until they time out or the test lets them go."""
    connection = await asyncpg.connect(database_dsn, timeout=60, command_timeout=60)
    try:
        await connection.execute(
            """
            CREATE FUNCTION pulse.wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN PERFORM pg_advisory_xact_lock(17); RETURN NEW; END';
            CREATE TRIGGER slow BEFORE UPDATE ON pulse.jobs FOR EACH ROW
                WHEN (NEW.topic = 'slow' AND NEW.status = 'RUNNING')
                EXECUTE FUNCTION pulse.wait_for_the_test();
            SELECT pg_advisory_lock(17);
            """
        )

        async def let_go() -> None:
            await connection.execute("SELECT pg_advisory_unlock(17)")

        yield let_go
        await connection.execute("DROP FUNCTION pulse.wait_for_the_test() CASCADE")
    finally:
        connection.terminate()


async def test_topic_that_is_slow_to_claim_delays_no_other_topic(
    database_dsn: str, slow_topic: Callable[[], Awaitable[None]]
) -> None:
    async with server_under_test(database_dsn, dispatch_interval=0.5 * SECOND) as server:
        await server.submit_many(100, "slow")
        await server.submit_many(100, "mail")
        async with (
            server.worker("slow", topics=["slow"], capacity=200),
            server.worker("quick", topics=["mail"], capacity=100) as quick,
        ):
            assert len(await quick.take(100)) == 100
            await slow_topic()
