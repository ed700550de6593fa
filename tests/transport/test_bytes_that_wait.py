"""Payloads that are leased and not yet sent, on a real stream."""

from tests.transport.pulse_server_under_test import ServerUnderTest

LARGE = bytes(900 * 1024)


async def test_worker_that_does_not_read_is_leased_a_few_megabytes(server: ServerUnderTest) -> None:
    ids = await server.submit_many(30, payload=LARGE)
    async with server.worker(capacity=1000) as worker:
        await server.dispatch_settles()
        leased = await server.table.count("status = 'RUNNING' AND topic = 'mail'")
        assert leased <= 12, "4 MiB wait, and a message or two are on their way"
        assert [job.job_id for job in await worker.take(30)] == ids
