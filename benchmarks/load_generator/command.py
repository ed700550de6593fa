"""`dev.py bench --addr HOST:PORT`."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Sequence

import pulse
from benchmarks.load_generator import options as command_line
from benchmarks.load_generator import results
from benchmarks.load_generator.generating import Run
from benchmarks.load_generator.options import Load, NoPassword, client_for, password_for

# ---------------------------------------------------------------- cleaning
# Removes the jobs of a run, and nothing else: each step names the topic of the run.


_LEFT = (
    "They go with the retention of the server, or by: pulse jobs delete --topic {topic} --status COMPLETED"
)


async def clean_up(p: pulse.Pulse, identity: pulse.Identity, topic: str) -> str:
    """Cancel unfinished jobs and delete all jobs. Returns a sentence about the result."""
    if not (identity.may("CancelJobs") and identity.may("DeleteJobs")):
        return f"The role {identity.role} may not delete jobs. {_LEFT.format(topic=topic)}"
    canceled = await _total(p.cancel_matching(topic=topic, reason="the end of a load test"))
    deleted = 0
    for status in (pulse.JobStatus.COMPLETED, pulse.JobStatus.CANCELED, pulse.JobStatus.DEAD_LETTERED):
        deleted += await _total(p.delete_matching(topic=topic, status=status))
    return f"Deleted {deleted:,} jobs of {topic}, {canceled:,} of which had not finished."


async def _total(steps: AsyncIterator[int]) -> int:
    """The last of the running totals."""
    return ([0] + [total async for total in steps])[-1]


# ---------------------------------------------------------------- command


def main(arguments: Sequence[str]) -> int:
    """Return 0, or 1 if the load could not be put on, or a job was refused."""
    options = command_line.parser().parse_args(arguments)
    try:
        password = password_for(options.user, options.password_file, os.environ)
        return asyncio.run(_run(options, password))
    except (NoPassword, pulse.PulseError) as error:
        print(error, file=sys.stderr)
        return 1


async def _run(options: argparse.Namespace, password: str | None) -> int:
    async with client_for(options, password) as producer:
        identity = await producer.whoami()
        load = _load(options, identity)
        print(_introduction(options, identity, load))
        worker = client_for(options, password, worker_id=load.topic) if load.has_worker else None
        run = Run(producer, worker, load)
        try:
            await _until_interrupted(run)
        finally:
            for line in results.lines(load, run.measured):
                print(line)
            if not load.keeps:
                print(await clean_up(producer, identity, load.topic))
            if worker is not None:
                await worker.close()
    if options.json:
        results.write(options.json, load, run.measured)
    return int(bool(run.measured.refused) or not run.measured.submits)


def _load(options: argparse.Namespace, identity: pulse.Identity) -> Load:
    has_worker = not options.no_worker
    if has_worker and not identity.may("StreamJobs"):
        print(f"The role {identity.role} may not run jobs, so submits alone are measured.", file=sys.stderr)
        has_worker = False
    return Load(
        rate=options.rate,
        seconds=options.seconds,
        concurrency=options.concurrency,
        payload_bytes=options.payload_bytes,
        work_seconds=options.work_ms / 1000,
        # Of this run alone: what waits under another name is neither run nor deleted.
        topic=f"{options.topic_prefix}-{secrets.token_hex(4)}",
        has_worker=has_worker,
        keeps=options.keep,
    )


def _introduction(options: argparse.Namespace, identity: pulse.Identity, load: Load) -> str:
    user = f"as {identity.user} ({identity.role})" if identity.user else "which is open"
    return f"{load.rate:g} jobs a second for {load.seconds:g} s on {options.addr}, {user}, topic {load.topic}"


async def _until_interrupted(run: Run) -> None:
    """Run to the end, or to Ctrl-C, which leaves time to clean up."""
    task = asyncio.ensure_future(run.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        print("Interrupted.", file=sys.stderr)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
