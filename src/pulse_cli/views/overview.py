"""Topics, workers, servers and groups of dead letters as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.output import View
from pulse_cli.terminal import (
    QUIET,
    Cell,
    Column,
    Line,
    Row,
    age,
    ago,
    lay_out,
    now,
)
from pulse_cli.views.shapes import dead_letter_shape, server_shape, worker_shape
from pulse_text import printable
from pulse_text.jobs import summary

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
    """Return the view of a list of workers."""
    present = now()
    fields = ("worker_id", "server", "connected_at", "topics", "capacity", "held_count", "state")
    return View(WORKER_COLUMNS, lambda worker: worker_row(worker, present), worker_shape, fields)


def worker_row(worker: pulse.WorkerInfo, present: datetime) -> Row:
    """Return a worker's row. It is red for a disconnected worker that still holds jobs."""
    style = "" if worker.connected_at else "red"
    longest = min((job.since for job in worker.held if job.since), default=None)
    holds = f"{worker.held_count:,}/{worker.capacity:,}" if worker.connected_at else f"{worker.held_count:,}"
    return [
        Cell(printable.one_line(worker.worker_id), style),
        Cell(holds, style or ("" if worker.held_count else QUIET)),
        Cell(age(longest, present), style or ("" if longest else QUIET)),
        _connection(worker, present),
        Cell(printable.one_line(", ".join(worker.topics)) or "–", style or QUIET),
        Cell(printable.one_line(worker.server or "–"), style or QUIET),
    ]


def _connection(worker: pulse.WorkerInfo, present: datetime) -> Cell:
    """Return since when it is connected, and what an operator has ordered."""
    if worker.connected_at is None:
        return Cell(_gone(worker, present), "red")
    since = age(worker.connected_at, present)
    return Cell(f"{since}, {worker.state.name}", "yellow") if worker.state else Cell(since)


def gone_first(workers: Sequence[pulse.WorkerInfo]) -> list[pulse.WorkerInfo]:
    """Return the workers by name, disconnected ones first."""
    return sorted(workers, key=lambda worker: worker.connected_at is not None)


def describe_held(workers: Sequence[pulse.WorkerInfo], width: int | None) -> Iterator[Line]:
    """Yield each worker, followed by the jobs it holds."""
    present = now()
    columns = (
        *(Column(""), Column("", shortest=8), Column("", drop=1), Column(""), Column("", drop=2)),
        Column("", shortest=10, drop=3),
    )
    for worker in workers:
        name = printable.one_line(worker.worker_id)
        if worker.connected_at:
            order = "" if worker.state is None else f", {worker.state.name}"
            state = f"connected {ago(worker.connected_at, present)}{order}"
            yield [Cell(name, "bold"), Cell(f"  {state}, holds {worker.held_count:,} of {worker.capacity:,}")]
        else:
            state = _gone(worker, present)
            yield [Cell(name, "bold red"), Cell(f"  {state}, holds {worker.held_count:,}", "red")]
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
        Cell("lease expired" if is_over else lease, "red" if is_over else QUIET),
        Cell("" if job.progress is None else printable.one_line(summary(job.progress, present))),
    ]


def _gone(worker: pulse.WorkerInfo, present: datetime) -> str:
    """Return how long a disconnected worker still holds its leases."""
    until = max((job.lease_until for job in worker.held if job.lease_until), default=None)
    if until is None:
        return "gone"
    return f"gone, {age(present, until)} left" if until > present else "gone, overdue"


_SERVER_COLUMNS = (
    Column("SERVER", shortest=16),
    Column("ADDRESS", shortest=12, drop=2),
    Column("VERSION", drop=1),
    Column("STARTED", right=True),
    Column("WORKERS", right=True),
    Column("STATE"),
)


def server_view() -> View[pulse.ServerInfo]:
    """Return the view of a list of servers. A silent server is red."""
    present = now()

    def row(server: pulse.ServerInfo) -> Row:
        silent, style = server.silent_since, "red" if server.silent_since else ""
        return [
            Cell(printable.one_line(server.name), style),
            Cell(printable.one_line(server.address or "–"), style or QUIET),
            Cell(printable.one_line(server.version or "–"), style),
            Cell("–" if server.started_at is None else ago(server.started_at, present), style),
            Cell(f"{server.workers:,}", style or ("" if server.workers else QUIET)),
            Cell("serving" if silent is None else f"silent for {age(silent, present)}", style),
        ]

    fields = ("name", "address", "version", "started_at", "workers", "silent_since", "id")
    return View(_SERVER_COLUMNS, row, server_shape, fields)


_DEAD_LETTER_COLUMNS = (
    Column("TOPIC", shortest=8),
    Column("COUNT", right=True),
    Column("FIRST", drop=2),
    Column("LAST", drop=1),
    Column("GROUP"),
    Column("ERROR", shortest=14),
)
_DEAD_LETTER_FIELDS = (
    *("topic", "error_group", "count", "first_at", "last_at"),
    *("sample.id", "sample.last_error"),
)


def dead_letter_view() -> View[pulse.DeadLetterGroup]:
    """Return the view of a list of groups of dead letters."""
    present = now()

    def row(group: pulse.DeadLetterGroup) -> Row:
        return [
            Cell(printable.one_line(group.topic)),
            Cell(f"{group.count:,}", "bold red"),
            Cell(_relative(group.first_at, present), QUIET),
            Cell(_relative(group.last_at, present)),
            Cell(group.error_group),
            Cell(printable.cause_first(group.sample.last_error or "")),
        ]

    return View(_DEAD_LETTER_COLUMNS, row, dead_letter_shape, _DEAD_LETTER_FIELDS)


def _relative(moment: datetime | None, present: datetime) -> str:
    return "" if moment is None else ago(moment, present)
