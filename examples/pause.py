"""Pause a topic: while the bank is down, pay-outs wait; everything else runs.

    pulsed                           # terminal 1: the server
    python examples/pause.py         # terminal 2: a worker that pauses one of its topics, and resumes it

p.pause(reason="maintenance") without a topic pauses every topic, until p.resume(). Either holds on all
replicas of the server, and across restarts. Set PULSE_ADDR=host:port if it is not at localhost:50051.
"""

import asyncio
import sys
from datetime import timedelta

import pulse

p = pulse.Pulse(timeout=timedelta(seconds=3))
done = {"notify": asyncio.Event(), "pay-out": asyncio.Event()}


@p.job("notify")
async def notify(ctx: pulse.Context) -> None:
    print(f"running: {ctx.topic}", flush=True)
    done[ctx.topic].set()


@p.job("pay-out")
async def pay_out(ctx: pulse.Context, cents: int) -> None:
    print(f"running: {ctx.topic} of {cents} cents", flush=True)
    done[ctx.topic].set()


async def main() -> None:
    await p.pause(reason="the bank is down", topic="pay-out")
    for topic, pause in (await p.dispatch_status()).topics.items():
        print(f"paused: {topic}, because {pause.reason}, since {pause.paused_at:%H:%M:%S} UTC", flush=True)

    worker = asyncio.create_task(p.run())
    job = await pay_out.enqueue(1200)  # jobs are still taken in, they only wait
    print(f"job {job.id} is {(await p.get_job(job.id)).status}", flush=True)
    await notify.enqueue()
    await done["notify"].wait()

    print("resuming: pay-out", flush=True)
    await p.resume(topic="pay-out")
    await done["pay-out"].wait()
    worker.cancel()  # drains: what runs finishes first
    await asyncio.wait({worker})
    await p.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except pulse.Unavailable as error:
        sys.exit(str(error))
