"""Producers that each await one enqueue at a time, while workers run the submitted jobs."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from benchmarks.counters import Transactions, read_transactions
from benchmarks.end_to_end import Ran, run_load
from benchmarks.figures import Figure, percentiles
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand


class Counted(NamedTuple):
    ran: Ran
    transactions: Transactions


async def measure(stand: Stand) -> list[Figure]:
    runs = {
        f"{processes} processes × {concurrency}": partial(_run, stand, processes, concurrency)
        for processes, concurrency in shapes(stand)
    }
    outcomes = await in_turn(stand, runs)
    figures = []
    for name, results in outcomes.items():
        about = f"{stand.load.jobs:,} jobs, {stand.load.producers} producers"
        figures.append(Figure("e2e", name, "jobs/s", [result.ran.rate for result in results], about))
        figures += percentiles("e2e", name, [result.ran.latencies for result in results])
        if not stand.is_brief:
            figures += _costs(name, results, stand.load.jobs)
    return figures


def shapes(stand: Stand) -> list[tuple[int, int]]:
    """Return how the slots are spread: in two processes, and in as many as there are streams."""
    load = stand.load
    spread = {(2, max(1, load.streams * load.concurrency // 2)), (load.streams, load.concurrency)}
    return sorted(spread)[: 1 if stand.is_brief else None]


async def _run(stand: Stand, processes: int, concurrency: int) -> Counted:
    async with stand.database() as dsn:
        async with stand.pulsed(dsn, with_metrics=True) as server:
            ran = await run_load(
                stand,
                dsn,
                [server],
                processes=processes,
                concurrency=concurrency,
                count_transactions=not stand.is_brief,
            )
        if ran.before is None:
            return Counted(ran, Transactions(0, 0))
        after = await read_transactions(stand.server_dsn, dsn)
        return Counted(ran, after.since(ran.before, ran.questions))


def _costs(name: str, results: list[Counted], jobs: int) -> list[Figure]:
    counted = [result.transactions for result in results]
    return [
        Figure(
            "e2e",
            f"{name}, transactions",
            "per job",
            [(one.committed + one.rolled_back) / jobs for one in counted],
            f"stop of pulsed included; {counted[-1].note}",
        ),
        Figure(
            "e2e",
            f"{name}, statements",
            "per job",
            [result.ran.statements for result in results],
            "of pulsed",
        ),
    ]
