"""A workflow: extract three days at once, load them together, then notify, whether that went well or not.

    pulsed                           # terminal 1: the server
    python examples/nightly.py       # terminal 2: a worker that stores the workflow, and runs it

The whole workflow is stored at once, or not at all. The server starts each job, in any worker, when the
jobs that it waits for have ended. Set PULSE_ADDR=host:port if the server is not at localhost:50051.
"""

import asyncio
import sys
from datetime import timedelta

import pulse

p = pulse.Pulse(timeout=timedelta(seconds=3))
DAYS = ("mon", "tue", "wed")


@p.job("extract")
async def extract(day: str) -> list[int]:
    print(f"extract: {day}", flush=True)
    return [len(day), DAYS.index(day)]  # stands for the rows of that day


@p.job("load")
async def load(ctx: pulse.Context) -> int:
    rows = [row async for parent in ctx.parents for row in parent.result]  # what the extracts have returned
    print(f"load: {len(rows)} rows", flush=True)
    return len(rows)


@p.job("notify")
def notify(ctx: pulse.SyncContext) -> None:
    loaded = ctx.parents["load"]  # a plain `def` blocks, without await
    print(f"notify: load {loaded.outcome}, {loaded.result} rows", flush=True)


async def main() -> None:
    async with p.workflow("nightly") as flow:
        days = [flow.add(extract, day, name=f"extract-{day}") for day in DAYS]
        loaded = flow.add(load, after=days)  # waits for all three
        flow.add(notify, after=loaded, when="always")  # also after a failure
    run = flow.handle  # the block has ended: the workflow is stored

    worker = asyncio.create_task(p.run())
    print(f"result of load: {await run.result(loaded)}", flush=True)
    ended = await run.wait()
    print(f"{ended.name}: {ended.status}, {ended.succeeded} of {ended.jobs} jobs", flush=True)
    worker.cancel()
    await asyncio.wait({worker})
    await p.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except pulse.Unavailable as error:
        sys.exit(str(error))
