"""A worker process of the demo: `python -m examples.demo.worker NAME ADDRESS`. Its name decides its topics.

Its reports about a long job go to standard output, one JSON object per line, for the demo to show.
Standard input is a pipe that only the demo holds: when it closes the demo is gone, and so is this process.
"""

import asyncio
import json
import os
import sys
import threading
from datetime import timedelta

import pulse
from examples.demo import shop

VIDEO_STEPS = 5


def register_handlers(p: pulse.Pulse) -> None:
    """Register what this worker can do. What examples/producer.py submits is among it."""

    @p.job("send-email")
    async def send_email(to: str, subject: str) -> None:
        await asyncio.sleep(0.05)

    @p.job("resize-photo")
    async def resize_photo(path: str) -> None:
        await asyncio.sleep(0.2)

    @p.job("charge-card")
    async def charge_card(ctx: pulse.Context, customer: str, cents: int) -> None:
        await asyncio.sleep(0.1)
        if ctx.attempt == 1:
            raise ConnectionError("the bank does not answer")

    @p.job("import-file")
    async def import_file(path: str) -> None:
        await asyncio.sleep(0.1)
        raise ValueError(f"{path}, line 7: 'seven' is not a number")

    @p.job("make-video")
    async def make_video(ctx: pulse.Context, seconds: float) -> None:
        for step in range(VIDEO_STEPS):
            report(ctx, percent=100 * step // VIDEO_STEPS)
            await asyncio.sleep(seconds / VIDEO_STEPS)


def report(ctx: pulse.Context, *, percent: int) -> None:
    """Report the progress of a job."""
    line = {"job_id": ctx.job_id, "attempt": ctx.attempt, "percent": percent}
    print(json.dumps(line), flush=True)


async def main(name: str, address: str) -> None:
    """Run jobs until SIGTERM."""
    register, concurrency = {
        shop.OFFICE: (shop.register_office, 12),
        shop.MEDIA: (shop.register_media, 8),
    }.get(name, (register_handlers, 4))
    p = pulse.Pulse(
        address, worker_id=name, concurrency=concurrency, drain_timeout=timedelta(milliseconds=500)
    )
    register(p)
    await p.run()


def end_with_the_demo() -> None:
    """Wait until the demo's end of the pipe closes; then end at once."""
    os.read(0, 1)  # not through sys.stdin, whose lock would be held when the interpreter exits
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_demo, daemon=True).start()
    asyncio.run(main(*sys.argv[1:]))
