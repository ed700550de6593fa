"""A worker whose jobs consist of steps: `python tests/system/step_program.py ADDRESS JOURNAL`.

Each part appends a line to the journal before its step is stored: the job, the part and the attempt.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import pulse

PARTS = 4
NAP = timedelta(milliseconds=100)

ADDRESS, JOURNAL = os.environ.get("STEPS_ADDRESS", ""), os.environ.get("STEPS_JOURNAL", "")
p = pulse.Pulse(ADDRESS or None, concurrency=8)


def part(ctx: pulse.Context, number: int) -> int:
    """Do a part of the work, and write it down."""
    file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{ctx.job_id} {number} {ctx.attempt}\n".encode())
    finally:
        os.close(file)
    time.sleep(0.03)
    return number * 10


@p.job("async-steps")
async def in_loop(ctx: pulse.Context) -> list[int]:
    done = [await ctx.step("part", part, ctx, number, index=number) for number in range(PARTS)]
    await ctx.sleep(NAP)
    go = await ctx.wait_for("go")
    done.append(await ctx.step("last", part, ctx, PARTS))
    return [*done, go]


def steps_in_thread(ctx: pulse.Context) -> list[int]:
    done = [ctx.step("part", part, ctx, number, index=number) for number in range(PARTS)]
    ctx.sleep(NAP)
    go = ctx.wait_for("go")
    done.append(ctx.step("last", part, ctx, PARTS))
    return [*done, go]


@p.job("thread-steps")
def in_thread(ctx: pulse.Context) -> list[int]:
    return steps_in_thread(ctx)


@p.job("process-steps", process=True)
def in_process(ctx: pulse.Context) -> list[int]:
    return steps_in_thread(ctx)


if __name__ == "__main__":
    import asyncio
    import logging

    logging.basicConfig(level=logging.INFO)
    assert sys.argv
    asyncio.run(p.run())
