"""A large run: two servers, one of them with users, several clients, and checks meanwhile."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from faults.fuzzing.crowd import crowd_at
from faults.fuzzing.seeding import take_out
from faults.fuzzing.tally import Tally
from faults.fuzzing.targets import Target, start_target
from faults.fuzzing.vitals import Memory, broken_rules
from pulse_server.database.schema import apply_migrations
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases, ThrowawayCluster
from tests.system.stage import Stage

# ---------------------------------------------------------------- report
# The report of a large run.


@dataclass(frozen=True)
class Outcome:
    """The counts and the memory of each server, by name, and all complaints."""

    seed: int
    seconds: float
    tallies: Mapping[str, Tally]
    memories: Mapping[str, Memory]
    complaints: list[str]

    @property
    def is_good(self) -> bool:
        return not self.complaints


def as_text(outcome: Outcome) -> str:
    whole = Tally()
    for tally in outcome.tallies.values():
        whole.add(tally)
    lines = [
        "",
        f"{whole.inputs:,} inputs in {outcome.seconds:.0f} s, seed {outcome.seed}; "
        f"{whole.well_formed:,} well-formed calls beside them",
        *(f"  {name}: {tally.inputs:,} inputs" for name, tally in outcome.tallies.items()),
        "",
        _listed("kinds of inputs", whole.kinds),
        _listed("kinds of RPCs", whole.streaming),
        _listed("statuses", whole.statuses),
        _listed("what bare connections received", whole.wires),
        _listed("RPCs, and how many calls were served", _with_served(whole)),
        "memory",
        *(f"  {name}: {memory}" for name, memory in outcome.memories.items()),
        "",
        f"wrong: {len(outcome.complaints)}",
        *(f"  {complaint}" for complaint in outcome.complaints),
    ]
    return "\n".join(lines)


def _with_served(tally: Tally) -> Counter[str]:
    return Counter({f"{name} ({tally.served[name]:,})": count for name, count in tally.rpcs.items()})


def _listed(title: str, counts: Counter[str]) -> str:
    return "\n".join([title, *(f"  {count:>9,}  {name}" for name, count in counts.most_common()), ""])


# ---------------------------------------------------------------- run


# For each client: whether its server has users, and its share of the inputs.
_CLIENTS = ((False, 0.35), (False, 0.35), (True, 0.3))
_LOOK_SECONDS = 2.0
_PROGRESS_SECONDS = 30.0
# For the servers to release the last callers before the last sample of their memory.
_QUIET_SECONDS = 3.0
_INTERRUPTED = 130


def run(inputs: int, seed: int) -> int:
    """Send this many inputs and print the report. Returns 0 without a complaint, else 1."""
    print(f"fuzzing with seed {seed}", flush=True)
    cluster = ThrowawayCluster()
    try:
        databases = Databases(cluster.dsn)
        dsn = databases.create()
        databases.run(apply_migrations(dsn))
        databases.close()
        with tempfile.TemporaryDirectory(prefix="pulse-fuzz-") as directory:
            outcome = asyncio.run(_carry_out(inputs, seed, Stage(dsn, Path(directory))))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        return _INTERRUPTED
    finally:
        cluster.stop()
    print(as_text(outcome))
    return 0 if outcome.is_good else 1


async def _carry_out(inputs: int, seed: int, stage: Stage) -> Outcome:
    began = time.monotonic()
    this = asyncio.current_task()
    assert this is not None
    # Like Ctrl-C, which asyncio handles: the processes end with this one.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    database = await asyncpg.connect(stage.dsn)
    try:
        plain, guarded = [await start_target(stage, guarded=guarded) for guarded in (False, True)]
        async with crowd_at(plain.server.address), crowd_at(guarded.server.address):
            for number, (has_users, share) in enumerate(_CLIENTS):
                target = guarded if has_users else plain
                target.add_client(stage, int(inputs * share) + 1, seed * 1000 + number)
            await _watch((plain, guarded), began, database)
        await asyncio.sleep(_QUIET_SECONDS)
        for target in (plain, guarded):
            if target.server.is_running:
                target.take_sample()
        complaints = [*plain.complaints(), *guarded.complaints(), *await broken_rules(database)]
        return Outcome(
            seed,
            time.monotonic() - began,
            {target.name: target.tally for target in (plain, guarded)},
            {target.name: target.memory for target in (plain, guarded)},
            complaints,
        )
    finally:
        await database.close()
        for process in stage.processes:
            process.kill()


async def _watch(targets: Sequence[Target], began: float, database: Connection) -> None:
    """Take samples and prune the tables until all clients have ended, or a server or client died."""
    reported = began
    while any(part.is_running for target in targets for part in target.parts):
        await asyncio.sleep(_LOOK_SECONDS)
        for target in targets:
            if not target.server.is_running or target.has_lost_a_client:
                return
            target.take_sample()
        await take_out(database)
        if time.monotonic() - reported > _PROGRESS_SECONDS:
            reported = time.monotonic()
            sent = " and ".join(f"{target.inputs:,} ({target.name})" for target in targets)
            print(f"  {reported - began:6.0f} s  {sent}", flush=True)
