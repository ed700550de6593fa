"""A run: jobs of all kinds for a while, then the end of each, and of the workers."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pulse
from faults.handlers import blowups, exits, forks, hangs, plain
from faults.handlers.kinds import KINDS
from faults.handlers.workers import CONCURRENCY, MAX_MEMORY_MIB, Workers
from pulse_server.database.schema import apply_migrations
from tests.postgres_cluster import Databases, ThrowawayCluster
from tests.system.journal import Execution
from tests.system.stage import Stage, all_finished, table_of

# ---------------------------------------------------------------- judging
# What went wrong in a run: jobs that ended otherwise than promised, and runs at the same time.


# By the id of a worker: "host-PID-random".
_PID = re.compile(r"-(\d+)-[0-9a-f]+$")
# A child that a run kills may have had an attempt in hand.
# The server's word for an attempt whose worker does not report it.
_ENDED_BY_SERVER = "time limit exceeded"
_CHILD_KILLED = "The process of this attempt was killed by SIGKILL"


def judge_job(job: pulse.JobInfo, crashed: Collection[int]) -> list[str]:
    """Compare the end of a job, and each of its failed attempts, with what its kind promises."""
    kind = KINDS[job.topic]
    what = f"job {job.id} ({job.topic})"
    found = []
    if job.status not in kind.ends:
        found.append(f"{what} is {job.status}, not {' or '.join(kind.ends)}: {_short(job.last_error)}")
    for attempt in job.history:
        if attempt.outcome == "canceled" and pulse.JobStatus.CANCELED in kind.ends:
            continue
        if attempt.outcome == "lease_expired" or attempt.error == _ENDED_BY_SERVER:
            if kind.is_stuck or _pid_of(attempt.worker_id) in crashed:
                continue
        elif (kind.errors and re.search(kind.errors, attempt.error)) or (
            kind.is_process and _CHILD_KILLED in attempt.error
        ):
            continue
        found.append(
            f"{what} {attempt.outcome} on attempt {attempt.attempt} at {attempt.worker_id}: "
            f"{_short(attempt.error)}"
        )
    return found


def judge_runs(entries: Iterable[Execution], jobs: Mapping[str, pulse.JobInfo]) -> list[str]:
    """Check that no job ran twice at the same time, and none that ended ran again without a reason."""
    runs: dict[str, list[Execution]] = defaultdict(list)
    for entry in entries:
        runs[entry.job_id].append(entry)
    found = []
    for job_id, job in jobs.items():
        kind = KINDS[job.topic]
        starts = [entry for entry in runs[job_id] if entry.event == "start"]
        if job.status is pulse.JobStatus.COMPLETED and not starts:
            found.append(f"job {job_id} ({job.topic}) is COMPLETED and never ran")
        if kind.is_stuck:
            continue  # its handler may go on beside the next attempt
        ended_at = {entry.facts["run"]: entry.at for entry in runs[job_id] if entry.event != "start"}
        for former, latter in itertools.pairwise(starts):
            if former.facts["run"] >= latter.facts["run"]:
                found.append(f"job {job_id} ({job.topic}) started run {latter.facts['run']} again")
            if ended_at.get(former.facts["run"], 0.0) > latter.at:
                found.append(f"job {job_id} ({job.topic}) ran twice at the same time")
        ends = [entry for entry in runs[job_id] if entry.event == "end"]
        if len(ends) > 1 + len(job.history):
            found.append(f"job {job_id} ({job.topic}) ended {len(ends)} times")
    return found


def _pid_of(worker_id: str) -> int | None:
    match = _PID.search(worker_id)
    return int(match[1]) if match else None


def _short(text: str | None) -> str:
    return repr((text or "")[:300])


# ---------------------------------------------------------------- campaign


# Importing them declares what their jobs promise.
assert all((blowups, exits, forks, hangs, plain))

_INTERRUPTED = 130
_PAUSE_SECONDS = 0.02
_LOOK_SECONDS = 0.1
_MOST_WAITING = 40
_SETTLE_SECONDS = 120.0
_GETS_AT_ONCE = 50
_LAST_JOBS = 30
# The memory is looked at every second, and a process that drains works on.
_MOST_MIB = MAX_MEMORY_MIB + 200
# Each slot may have a thread that is stuck beside the one that replaced it; gRPC and the SDK have their own.
_MOST_THREADS = 2 * CONCURRENCY + 60
_SETTINGS = {
    # Long enough for a busy machine: a lease is lost only by a process that died.
    "PULSE_LEASE_TTL": "10s",
    "PULSE_HEARTBEAT_INTERVAL": "1s",
    "PULSE_WATCHDOG_INTERVAL": "300ms",
}


@dataclass
class Outcome:
    """What a run found."""

    seconds: float = 0.0
    jobs: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    deaths: dict[str, int] = field(default_factory=dict)
    most_threads: int = 0
    most_mib: int = 0
    most_zombies: int = 0
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{topic} {count}" for topic, count in sorted(self.jobs.items()))
        lines = [
            f"{sum(self.jobs.values())} jobs of {len(self.jobs)} kinds in {self.seconds:.0f} s: {kinds}",
            f"ends: {dict(self.ends)}; processes: {self.deaths}",
            f"at most {self.most_threads} threads, {self.most_mib} MiB and {self.most_zombies} zombies "
            "in a worker",
            *(f"COMPLAINT: {complaint}" for complaint in self.complaints[:40]),
            f"{len(self.complaints)} complaints",
        ]
        return "\n".join(lines)


def run(seconds: float, seed: int) -> int:
    """Run for this long and print the report. Returns 0 without a complaint, else 1."""
    print(f"handlers that misbehave, with seed {seed}, for {seconds:g} s", flush=True)
    cluster = ThrowawayCluster()
    try:
        databases = Databases(cluster.dsn)
        dsn = databases.create()
        databases.run(apply_migrations(dsn))
        databases.close()
        directory = Path(tempfile.mkdtemp(prefix="pulse-handlers-"))
        stage = Stage(dsn, directory)
        outcome = asyncio.run(_run_until_stopped(stage, seconds, seed))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        return _INTERRUPTED
    finally:
        cluster.stop()
    print(outcome)
    if outcome.complaints:
        print(f"the logs are in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


async def _run_until_stopped(stage: Stage, seconds: float, seed: int) -> Outcome:
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    try:
        return await carry_out(stage, seconds, seed, lambda text: print(text, flush=True))
    finally:
        for process in stage.processes:
            process.kill()


async def carry_out(stage: Stage, seconds: float, seed: int, report: Callable[[str], None]) -> Outcome:
    """Carry out a run. No process of a worker is left at its end."""
    random = Random(seed)
    server = await stage.pulsed(**_SETTINGS)
    workers = Workers(stage, server.address, f"{os.getpid()}-{seed}", random)
    began = time.monotonic()
    try:
        await workers.connected()
        async with pulse.Pulse(server.address) as p:
            campaign = Campaign(p, stage, random)
            nemeses = [
                asyncio.create_task(workers.keep()),
                asyncio.create_task(workers.kill_now_and_then(seconds)),
            ]
            report(f"submitting jobs of {len(KINDS)} kinds")
            await campaign.submit_for(seconds)
            nemeses[1].cancel()
            report(f"{len(campaign.topics)} jobs were submitted; waiting for their ends")
            await campaign.settle()
            await workers.without(campaign.frozen_processes())
            nemeses[0].cancel()
            await asyncio.gather(*nemeses, return_exceptions=True)
            await workers.stop()
            report("judging")
            outcome = await campaign.judge(workers)
    finally:
        workers.kill_all()
    outcome.seconds = time.monotonic() - began
    return outcome


class Campaign:
    """Submits, cancels and judges."""

    def __init__(self, p: pulse.Pulse, stage: Stage, random: Random) -> None:
        self._p = p
        self._stage = stage
        self._random = random
        self.topics: dict[str, str] = {}
        # What the journal has shown so far.
        self._seen: set[str] = set()
        self._read = 0
        self._canceling: set[asyncio.Task[None]] = set()
        self._complaints: list[str] = []

    async def submit_for(self, seconds: float) -> None:
        """Submit jobs for this long: each kind once, then by their weights."""
        table = await table_of(self._stage.dsn)
        end = time.monotonic() + seconds
        first = sorted(KINDS, key=lambda _: self._random.random())
        topics, weights = list(KINDS), [kind.weight for kind in KINDS.values()]
        while time.monotonic() < end:
            for topic in first or self._random.choices(topics, weights, k=10):
                handle = await self._p.enqueue(topic)
                self.topics[handle.id] = topic
                if pulse.JobStatus.CANCELED in KINDS[topic].ends:
                    task = asyncio.create_task(self._cancel(handle.id, topic))
                    self._canceling.add(task)
                    task.add_done_callback(self._canceling.discard)
                await asyncio.sleep(_PAUSE_SECONDS)
            first = []
            while (  # noqa: ASYNC110
                await table.count("finished_at IS NULL") > _MOST_WAITING and time.monotonic() < end
            ):
                await asyncio.sleep(_PAUSE_SECONDS)
        await table.connection.close()

    async def _cancel(self, job_id: str, topic: str) -> None:
        if topic == "cancel-at-the-end":
            await asyncio.sleep(self._random.uniform(0.0, 0.1))
        else:
            await self._started(job_id)
        with suppress(pulse.PulseError):  # it has completed
            await self._p.cancel(job_id, "by the operator of the run")

    async def _started(self, job_id: str) -> None:
        """Return once the job has started, or a while later if it does not."""
        end = time.monotonic() + _SETTLE_SECONDS / 2
        while job_id not in self._seen and time.monotonic() < end:
            entries = self._stage.journal.entries()
            self._seen |= {entry.job_id for entry in entries[self._read :]}
            self._read = len(entries)
            await asyncio.sleep(_LOOK_SECONDS)

    async def settle(self) -> None:
        """Wait for the end of all jobs. Then plain ones must still complete."""
        await asyncio.gather(*self._canceling)
        last = [await self._p.enqueue("plain") for _ in range(_LAST_JOBS)]
        self.topics |= {handle.id: "plain" for handle in last}
        table = await table_of(self._stage.dsn)
        try:
            await all_finished(table, _SETTLE_SECONDS)
        except AssertionError as error:
            self._complaints.append(str(error))
        finally:
            await table.connection.close()

    def frozen_processes(self) -> set[int]:
        """Return the processes in which a handler has frozen the interpreter."""
        entries = self._stage.journal.entries()
        return {entry.pid for entry in entries if entry.event == "start" and KINDS[entry.topic].freezes}

    async def judge(self, workers: Workers) -> Outcome:
        """Compare everything that happened with what was promised."""
        ids = list(self.topics)
        jobs: dict[str, pulse.JobInfo] = {}
        for begin in range(0, len(ids), _GETS_AT_ONCE):
            some = ids[begin : begin + _GETS_AT_ONCE]
            jobs |= {job.id: job for job in await asyncio.gather(*map(self._p.get_job, some))}
        outcome = Outcome(
            jobs=Counter(self.topics.values()),
            ends=Counter(str(job.status) for job in jobs.values()),
            deaths=workers.ends,
            most_threads=workers.most_threads,
            most_mib=workers.most_resident_bytes >> 20,
            most_zombies=workers.most_zombies,
            complaints=[*self._complaints, *workers.complaints],
        )
        for job in jobs.values():
            outcome.complaints += judge_job(job, workers.crashed)
        outcome.complaints += judge_runs(self._stage.journal.entries(), jobs)
        if outcome.most_threads > _MOST_THREADS:
            outcome.complaints.append(f"a worker had {outcome.most_threads} threads")
        if outcome.most_mib > _MOST_MIB:
            outcome.complaints.append(f"a worker took {outcome.most_mib} MiB")
        return outcome
