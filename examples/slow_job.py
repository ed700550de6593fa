"""A job that takes 45 seconds, longer than its lease, and survives a crash of its worker.

A worker holds a job by a lease of 30 seconds, and renews it with a heartbeat every 10 seconds while the
handler runs. When the worker dies the heartbeats stop, the lease runs out, and the job is free again.

    pulsed                           # terminal 1: the server
    python examples/slow_job.py      # terminal 2: submits the job and runs it; note the pid that it prints
    kill -9 PID                      # terminal 3, after some seconds: the worker vanishes without a word
    python examples/slow_job.py      # terminal 2 again: waits for the same job, and finishes it

The second run sees the job RUNNING for up to 40 seconds, in the hands of a worker that is no more: the server
cannot know of the death, only that the lease was not renewed. Then attempt 2 runs, and the job ends COMPLETED
with the error of attempt 1 kept: "worker lease expired". `slow_job.py 5` takes 5 seconds instead of 45.
docs/how-to/watch-a-crash.md has it second by second.
"""

import asyncio
import os
import sys
from datetime import timedelta

import pulse

# On Ctrl-C the job gets one second to finish. Then it is handed back, without losing an attempt.
p = pulse.Pulse(timeout=timedelta(seconds=3), drain_timeout=timedelta(seconds=1))


@p.job("slow-job")
async def slow_job(ctx: pulse.Context, seconds: float) -> None:
    print(f"attempt {ctx.attempt} runs here for {seconds:g} s, in process {os.getpid()}", flush=True)
    await asyncio.sleep(seconds)


async def main(seconds: float) -> None:
    unfinished = [job.id async for job in p.iter_jobs(topic="slow-job") if not job.status.is_finished]
    job_id = unfinished[0] if unfinished else (await slow_job.enqueue(seconds)).id
    print(f"job {job_id} was {'left by an earlier run' if unfinished else 'submitted'}", flush=True)
    worker = asyncio.create_task(p.run())
    shown = ""
    while not worker.done():
        job = await p.get_job(job_id)
        news = f"{job.status}, attempt {job.attempts}, last error: {job.last_error}"
        if news != shown:
            print(news, flush=True)
            shown = news
        if job.status.is_finished:
            worker.cancel()
        await asyncio.wait({worker}, timeout=0.5)
    await p.close()


if __name__ == "__main__":
    try:
        asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 45))
    except pulse.Unavailable as error:
        sys.exit(str(error))
