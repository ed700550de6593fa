"""Waits of real processes: servers that are killed meanwhile, and ten thousand jobs at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pulse
from tests.cli.command_line import SOURCES
from tests.cli.serving import serving
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.system.stage import free_port

LONG = timedelta(seconds=4 * PATIENCE_SECONDS)


@asynccontextmanager
async def working(address: str, handler: Any) -> AsyncIterator[None]:
    async with pulse.Pulse(address) as p:
        p.register("work", handler)
        task = asyncio.create_task(p.run(handle_signals=False))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


async def seven() -> int:
    return 7


async def test_wait_survives_the_kill_of_its_server_and_ends_by_another(database_dsn: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with pulse.Pulse(address) as p:
        with serving(database_dsn, PULSE_GRPC_ADDR=address):
            handle, ended = await p.enqueue("work"), await p.enqueue("work")
            waits = [asyncio.ensure_future(one.result(LONG)) for one in (handle, ended)]
            await eventually(lambda: p._caller.session().awaiting._patience.is_endless)
        # It was killed. The jobs are completed while nothing is there to hear of it.
        with serving(database_dsn) as other:
            async with working(other, seven):
                await eventually(lambda: completed(other, handle.id, ended.id))
            assert not any(wait.done() for wait in waits)
            with serving(database_dsn, PULSE_GRPC_ADDR=address):
                assert await asyncio.gather(*waits) == [7, 7]


async def completed(address: str, *job_ids: str) -> bool:
    async with pulse.Pulse(address) as p:
        return all([(await p.get_job(job_id)).status.is_finished for job_id in job_ids])


async def test_job_of_a_worker_at_another_server_is_waited_for(database_dsn: str) -> None:
    with serving(database_dsn) as one, serving(database_dsn) as other:
        async with pulse.Pulse(one) as p, working(other, seven):
            for _ in range(5):
                assert await (await p.enqueue("work")).result(LONG) == 7


MANY = """
import asyncio, gc, os, sys
from datetime import timedelta
import pulse

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main(address):
    async with pulse.Pulse(address) as p:
        warm = await p.enqueue("warm")
        await p.cancel(warm.id)
        await warm.wait()
        handles = await p.enqueue_many("work", [{"number": number} for number in range(10_000)])
        before = resident_bytes()
        waits = asyncio.ensure_future(pulse.gather(*handles, timeout=timedelta(seconds=120)))
        awaiting = p._caller.session().awaiting
        while len(awaiting._waits) < 10_000 or awaiting._added:
            await asyncio.sleep(0.01)
        print("waiting", flush=True)
        results = await waits
        assert results == [number + 1 for number in range(10_000)], results[:10]
        print(resident_bytes() // 2**20, (resident_bytes() - before) // 2**20, flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def increment(number: int) -> int:
    return number + 1


async def test_ten_thousand_jobs_are_awaited_over_one_stream_in_little_memory(database_dsn: str) -> None:
    with serving(database_dsn) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MANY, address),
            env={"PYTHONPATH": str(SOURCES)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"waiting\n"
        async with working(address, increment):
            total, grown = (await process.stdout.readline()).split()
            assert await process.wait() == 0
    assert int(total) < 100, f"{total} MiB in all"
    assert int(grown) < 30, f"{grown} MiB more than before"
