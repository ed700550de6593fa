"""Ten thousand dead letters are retried while workers work, and the caller stops half-way."""

from __future__ import annotations

from collections import Counter

import pulse
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.test_rpc_many_jobs import add_dead_letters

DEAD = 10_000
HALF = DEAD // 2
LATER = 7
UNTOUCHED = "SELECT id, job::text FROM pulse.jobs AS job WHERE status = 'DEAD_LETTERED'"


async def test_bulk_retry_under_load_loses_nothing_and_stops_where_the_caller_stops(
    server: ServerUnderTest, running: Running
) -> None:
    await add_dead_letters(server, DEAD)
    before = dict(await server.table.connection.fetch(UNTOUCHED))
    ran: Counter[str] = Counter()
    async with pulse.Pulse(server.address, concurrency=100) as p:

        @p.job("mail")
        async def mail(ctx: pulse.Context) -> None:
            ran[ctx.job_id] += 1

        async with running(p):
            load = [handle.id for handle in await p.enqueue_many("mail", [None] * 500)]
            counted = await p.count_jobs(status="DEAD_LETTERED")
            await add_dead_letters(server, LATER)
            done = 0
            async for done in p.retry_matching(status="DEAD_LETTERED", before=counted.counted_at):
                if done >= HALF:
                    break

            rest = dict(await server.table.connection.fetch(UNTOUCHED))
            assert (counted.count, done) == (DEAD, HALF)
            assert len(rest) == DEAD - HALF + LATER
            assert len(rest.items() & before.items()) == DEAD - HALF

            again = p.retry_matching(status="DEAD_LETTERED", before=counted.counted_at)
            *_, done = [so_far async for so_far in again]
            await server.table.wait_for_count(DEAD + len(load), "status = 'COMPLETED'")

    assert done == DEAD - HALF
    assert ran.keys() == {str(job_id) for job_id in before} | set(load)
    assert set(ran.values()) == {1}
    assert await server.table.count("status = 'DEAD_LETTERED'") == LATER
