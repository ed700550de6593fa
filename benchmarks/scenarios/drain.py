"""A preloaded queue, one pulsed, and one or two worker processes with a no-op handler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks import raw
from benchmarks.counters import read_transactions
from benchmarks.draining import Drained, drain
from benchmarks.figures import WITHOUT_PGO, Figure, beside_best
from benchmarks.filling import TOPIC, fill
from benchmarks.repeating import Runs, in_turn
from benchmarks.stand import Stand

JOBS = 20_000
NAMES = {f"{JOBS:,} jobs, 1 worker process": 1, f"{JOBS:,} jobs, 2 worker processes": 2}


async def measure(stand: Stand) -> list[Figure]:
    names = [name + way for way in ("", WITHOUT_PGO)[: 2 if stand.plain_python else 1] for name in NAMES]
    runs: Runs[Drained] = {name: partial(_run, stand, name) for name in names}
    outcomes = await in_turn(stand, {**runs, **({} if stand.is_brief else raw.cycle_runs(stand))})
    limits = raw.cycle_figures("drain", outcomes)
    figures = [beside_best(Figure("drain", name, "jobs/s", _rates(outcomes[name])), limits) for name in names]
    for name in names:
        figures += _costs(name, outcomes[name], stand.sized(JOBS))
    return [*figures, *limits]


async def _run(stand: Stand, name: str) -> Drained:
    processes = NAMES[name.removesuffix(WITHOUT_PGO)]
    if name.endswith(WITHOUT_PGO) and stand.plain_python:
        with stand.running_on(stand.plain_python):
            return await _drained(stand, processes)
    return await _drained(stand, processes)


async def _drained(stand: Stand, processes: int) -> Drained:
    jobs = stand.sized(JOBS)
    async with stand.database() as dsn:
        await fill(dsn, jobs)
        await stand.settle(dsn)
        before = await read_transactions(stand.server_dsn, dsn)
        async with stand.pulsed(dsn, with_metrics=True) as server:
            drained = await drain(stand, dsn, [server], [TOPIC], jobs, processes=processes)
        after = await read_transactions(stand.server_dsn, dsn)
        return replace(drained, transactions=after.since(before, drained.questions))


def _rates(runs: Sequence[Drained]) -> list[float]:
    return [run.rate for run in runs]


def _costs(name: str, runs: Sequence[Drained], jobs: int) -> list[Figure]:
    """The cost of a job: CPU by process, transactions, statements."""
    figures = [
        Figure("drain", f"{name}, CPU in {who}", "µs/job", [run.cpu[who] for run in runs])
        for who in ("Postgres", "pulsed", "worker")
        if all(who in run.cpu for run in runs)
    ]
    if name.endswith(WITHOUT_PGO):
        return figures  # The database gets the same statements from every interpreter.
    counted = [run.transactions for run in runs if run.transactions is not None]
    note = f"start and stop of pulsed included; {counted[-1].note}"
    return [
        *figures,
        Figure(
            "drain",
            f"{name}, transactions",
            "per job",
            [(run.committed + run.rolled_back) / jobs for run in counted],
            note,
        ),
        Figure("drain", f"{name}, statements", "per job", [run.statements for run in runs], "of pulsed"),
    ]
