"""Topics, workers, servers and groups of dead letters as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.output import View
from pulse_cli.terminal import (
    QUIET,
    WARNING,
    Cell,
    Column,
    Line,
    Row,
    age,
    ago,
    compact,
    lay_out,
    now,
    without_empty,
)
from pulse_cli.views.shapes import dead_letter_shape, server_shape, topic_shape, worker_shape
from pulse_text import printable
from pulse_text.jobs import summary

if TYPE_CHECKING:
    import pulse


TOPIC_COLUMNS = (
    Column("TOPIC", shortest=20),
    Column("READY", right=True),
    Column("OLDEST", right=True, drop=2),
    Column("WAIT", right=True, drop=5),
    Column("FOR JOBS", right=True, drop=6, optional=True),
    Column("RUN", right=True),
    Column("DEAD", right=True),
    Column("CANCELED", right=True, drop=9),
    Column("IN/MIN", right=True, drop=8),
    Column("DONE/MIN", right=True, drop=1),
    Column("FAIL/MIN", right=True, drop=3),
    Column("IN/H", right=True, drop=10),
    Column("DONE/H", right=True, drop=11),
    Column("FAIL/H", right=True, drop=12),
    Column("WORKERS", right=True, drop=4),
    Column("", optional=True),
)
_RATES = ("submitted", "completed", "failed", "dead_lettered")
_TOPIC_FIELDS = (
    *("topic", "ready", "waiting", "running", "dead_lettered", "canceled", "oldest_ready_at", "paused"),
    *("workers", *(f"last_minute.{rate}" for rate in _RATES), *(f"last_hour.{rate}" for rate in _RATES)),
    "waiting_for_jobs",
)


def topic_view() -> View[pulse.TopicInfo]:
    """Return the view of a list of topics."""
    present = now()
    return View(TOPIC_COLUMNS, lambda topic: topic_row(topic, present), topic_shape, _TOPIC_FIELDS)


def topic_table(
    topics: Sequence[pulse.TopicInfo], width: int | None, total: pulse.TopicInfo | None = None
) -> list[Line]:
    """Return the table of topics, with a row of totals if there are several.

    `total` is the sum of all topics. It is given if `topics` is not complete.
    """
    present = now()
    rows = [topic_row(topic, present) for topic in topics]
    if len(topics) > 1:
        rows.append(total_row(topics if total is None else [total], present))
    return lay_out(*without_empty(TOPIC_COLUMNS, rows), width)


def topic_row(topic: pulse.TopicInfo, present: datetime) -> Row:
    """Return a topic's row: what needs attention is red, zeros are dim."""
    minute, hour = topic.last_minute, topic.last_hour
    return [
        Cell(printable.one_line(topic.topic)),
        _count(topic.ready),
        Cell(age(topic.oldest_ready_at, present), "" if topic.oldest_ready_at else QUIET),
        _count(topic.waiting),
        Cell(compact(topic.waiting_for_jobs) if topic.waiting_for_jobs else ""),
        _count(topic.running, "blue"),
        _count(topic.dead_lettered, "bold red"),
        _count(topic.canceled),
        _count(minute.submitted),
        _count(minute.completed, "green"),
        _count(minute.failed, "red"),
        _count(hour.submitted),
        _count(hour.completed),
        _count(hour.failed),
        Cell("none", "bold yellow") if topic.ready and not topic.workers else _count(topic.workers),
        Cell("paused" if topic.paused else "", WARNING),
    ]


def total_row(topics: Sequence[pulse.TopicInfo], present: datetime) -> Row:
    """Return the row of totals. Workers are not summed: one may serve several topics."""
    counts = [sum(column) for column in zip(*map(_counts, topics), strict=True)]
    oldest = min((t.oldest_ready_at for t in topics if t.oldest_ready_at), default=None)
    texts = ["total", compact(counts[0]), age(oldest, present), *map(compact, counts[1:]), "", ""]
    waiting_for_jobs = sum(topic.waiting_for_jobs for topic in topics)
    texts.insert(4, compact(waiting_for_jobs) if waiting_for_jobs else "")
    return [Cell(text, "bold") for text in texts]


def _counts(topic: pulse.TopicInfo) -> Sequence[int]:
    minute, hour = topic.last_minute, topic.last_hour
    return (
        *(topic.ready, topic.waiting, topic.running, topic.dead_lettered, topic.canceled),
        *(minute.submitted, minute.completed, minute.failed),
        *(hour.submitted, hour.completed, hour.failed),
    )


def _count(number: int, style: str = "") -> Cell:
    return Cell(compact(number), style if number else QUIET)


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
