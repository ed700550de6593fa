"""How workers look to people, and what each of them holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.text import printable
from pulse_cli.text.moments import age, ago, now
from pulse_cli.views.output import View
from pulse_cli.views.shapes import worker_shape
from pulse_cli.views.tables import QUIET, Cell, Column, Line, Row, lay_out

if TYPE_CHECKING:
    import pulse

WORKER_COLUMNS = (
    Column("WORKER", shortest=16),
    Column("HOLDS", right=True),
    Column("LONGEST", right=True),
    Column("CONNECTED", shortest=14),
    Column("TOPICS", shortest=10, drop=2),
    Column("SERVER", shortest=8, drop=3),
)


def worker_view() -> View[pulse.WorkerInfo]:
    """Return how workers are listed."""
    present = now()
    fields = ("worker_id", "server", "connected_at", "topics", "capacity", "held_count")
    return View(WORKER_COLUMNS, lambda worker: worker_row(worker, present), worker_shape, fields)


def worker_row(worker: pulse.WorkerInfo, present: datetime) -> Row:
    """Return a worker's row. One that is gone and still holds jobs is red."""
    style = "" if worker.connected_at else "red"
    longest = min((job.since for job in worker.held if job.since), default=None)
    holds = f"{worker.held_count:,}/{worker.capacity:,}" if worker.connected_at else f"{worker.held_count:,}"
    return [
        Cell(printable.one_line(worker.worker_id), style),
        Cell(holds, style or ("" if worker.held_count else QUIET)),
        Cell(age(longest, present), style or ("" if longest else QUIET)),
        Cell(age(worker.connected_at, present) if worker.connected_at else _gone(worker, present), style),
        Cell(printable.one_line(", ".join(worker.topics)) or "–", style or QUIET),
        Cell(printable.one_line(worker.server or "–"), style or QUIET),
    ]


def gone_first(workers: Sequence[pulse.WorkerInfo]) -> list[pulse.WorkerInfo]:
    """Return the workers by name, those that somebody should look at before the others."""
    return sorted(workers, key=lambda worker: worker.connected_at is not None)


def describe_held(workers: Sequence[pulse.WorkerInfo], width: int | None) -> Iterator[Line]:
    """Yield each worker with the jobs that it holds below it."""
    present = now()
    columns = (Column(""), Column("", shortest=8), Column("", drop=1), Column(""), Column("", drop=2))
    for worker in workers:
        name = printable.one_line(worker.worker_id)
        if worker.connected_at:
            told = f"connected {ago(worker.connected_at, present)}"
            yield [Cell(name, "bold"), Cell(f"  {told}, holds {worker.held_count:,} of {worker.capacity:,}")]
        else:
            told = _gone(worker, present)
            yield [Cell(name, "bold red"), Cell(f"  {told}, holds {worker.held_count:,}", "red")]
        yield from lay_out(columns, [_held_row(job, present) for job in worker.held], width)[1:]
        if worker.held_count > len(worker.held):
            yield [Cell(f"  … and {worker.held_count - len(worker.held):,} more", QUIET)]


def _held_row(job: pulse.HeldJob, present: datetime) -> Row:
    lease = "" if job.lease_until is None else f"lease ends {ago(job.lease_until, present)}"
    is_over = job.lease_until is not None and job.lease_until < present
    return [
        Cell(f"  {job.id}"),
        Cell(printable.one_line(job.topic)),
        Cell(f"attempt {job.attempt}"),
        Cell(f"for {age(job.since, present)}"),
        Cell("lease is over" if is_over else lease, "red" if is_over else QUIET),
    ]


def _gone(worker: pulse.WorkerInfo, present: datetime) -> str:
    """Say of a worker without a connection how long it keeps its jobs from another."""
    until = max((job.lease_until for job in worker.held if job.lease_until), default=None)
    if until is None:
        return "gone"
    return f"gone, {age(present, until)} left" if until > present else "gone, overdue"
