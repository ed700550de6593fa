"""The screen of `pulse top`: totals, what needs attention, topics, workers, jobs that have progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.jobs.views import progress_lines
from pulse_cli.terminal import (
    QUIET,
    WARNING,
    Cell,
    Column,
    Line,
    Row,
    age,
    bar,
    compact,
    cut_line,
    lay_out,
    now,
    sparkline,
    without_empty,
)
from pulse_cli.topics.views import TOPIC_COLUMNS, topic_row
from pulse_cli.views.findings import finding_lines
from pulse_cli.views.overview import WORKER_COLUMNS, gone_first, worker_row
from pulse_cli.views.overview_snapshot import Snapshot
from pulse_text import printable

if TYPE_CHECKING:
    from pulse import DispatchStatus, TopicInfo, TopicPause


_ALARM = "bold white on red"
_PAUSED = f"bold black on {WARNING}"
_BAR_WIDTH = 16
_LEAST_ROWS = 3
_FINDINGS_SHOWN = 3
_MARGIN = "  "


def frame(
    snapshot: Snapshot | None,
    trend: Sequence[int],
    title: str,
    trouble: str,
    width: int | None,
    height: int | None,
) -> list[Line]:
    """Return the lines of the screen, at most `height` of `width` each; None is any size."""
    present = now()
    lines: list[Line] = [[Cell("pulse top", "bold"), Cell(f"{_MARGIN}{printable.one_line(title)}", QUIET)]]
    if trouble:
        silent = f"Snapshot of {age(snapshot.at, present)} ago. " if snapshot else ""
        lines.append([Cell(f" {silent}{printable.one_line(trouble)} ", _ALARM)])
    if snapshot is not None:
        lines += _pauses(snapshot, present)
        lines += _totals(snapshot, trend, present)
        if found := [finding for finding in snapshot.findings if finding.kind != "paused"]:
            lines += [*finding_lines(found, _FINDINGS_SHOWN), []]
        left = None if height is None else height - len(lines)
        lines += _tables(snapshot, present, width, left)
    lines = lines[:height]
    return lines if width is None else [cut_line(line, width) for line in lines]


def _pauses(snapshot: Snapshot, present: datetime) -> Iterator[Line]:
    status = snapshot.dispatch
    if status.paused:
        held = f"{snapshot.ready:,} waiting"
        yield [
            Cell(
                f" PAUSED: everything{_since(status, present)}{_by(status)}, {held}{_why(status.reason)} ",
                _PAUSED,
            )
        ]
    ready = {topic.topic: topic.ready for topic in snapshot.topics}
    for topic, pause in sorted(status.topics.items(), key=lambda item: -ready.get(item[0], 0)):
        text = f"{printable.one_line(topic)} for {age(pause.paused_at, present)}{_by(pause)}"
        held = f"{ready.get(topic, 0):,} waiting"
        yield [Cell(f" PAUSED: {text}, {held}{_why(pause.reason)} ", _PAUSED)]


def _since(status: DispatchStatus, present: datetime) -> str:
    return "" if status.paused_at is None else f" for {age(status.paused_at, present)}"


def _by(pause: DispatchStatus | TopicPause) -> str:
    return f" by {printable.one_line(pause.paused_by)}" if pause.paused_by else ""


def _why(reason: str) -> str:
    return f": {printable.one_line(reason)}" if reason else ""


def _totals(snapshot: Snapshot, trend: Sequence[int], present: datetime) -> Iterator[Line]:
    topics = snapshot.everything
    oldest = min((topic.oldest_ready_at for topic in topics if topic.oldest_ready_at), default=None)
    dead = sum(topic.dead_lettered for topic in topics)
    gone = sum(worker.connected_at is None for worker in snapshot.workers)
    connected = len({worker.worker_id for worker in snapshot.workers if worker.connected_at})
    starving = snapshot.ready and not connected
    for_jobs = sum(topic.waiting_for_jobs for topic in topics)
    yield [
        Cell(f"ready {snapshot.ready:,}", "bold"),
        Cell(f" {sparkline(trend)}" if len(trend) > 1 else "", "cyan"),
        Cell(f", oldest {age(oldest, present)}" if oldest else ""),
        Cell(f"{_MARGIN}waiting {compact(sum(topic.waiting for topic in topics))}"),
        Cell(f", {compact(for_jobs)} for jobs" if for_jobs else ""),
        Cell(f"{_MARGIN}running {compact(sum(topic.running for topic in topics))}"),
        Cell(f"{_MARGIN}dead {compact(dead)}", "bold red" if dead else ""),
        Cell(f"{_MARGIN}workers {connected:,}", "bold yellow" if starving else ""),
        Cell(f", {gone:,} gone" if gone else "", "bold red"),
    ]
    minute, hour = [t.last_minute for t in topics], [t.last_hour for t in topics]
    yield [
        Cell("last 1m ", QUIET),
        Cell(f"{compact(sum(rates.submitted for rates in minute))} in, "),
        Cell(f"{compact(sum(rates.completed for rates in minute))} done", "green"),
        Cell(f", {compact(sum(rates.failed for rates in minute))} failed"),
        Cell(f"{_MARGIN}1h ", QUIET),
        Cell(f"{compact(sum(rates.submitted for rates in hour))} in, "),
        Cell(f"{compact(sum(rates.completed for rates in hour))} done", "green"),
        Cell(f", {compact(sum(rates.failed for rates in hour))} failed"),
    ]
    yield []


def _tables(snapshot: Snapshot, present: datetime, width: int | None, height: int | None) -> list[Line]:
    topics = _topic_lines(snapshot.topics, present, width)
    unseen = max(0, snapshot.topic_count - len(snapshot.topics))
    if unseen:
        topics.append([Cell(f"… and {unseen:,} more. See: pulse topics --search TEXT", QUIET)])
    workers = lay_out(
        WORKER_COLUMNS, [worker_row(worker, present) for worker in gone_first(snapshot.workers)], width
    )
    if not snapshot.workers:
        workers = [[Cell("No worker is connected.", "bold yellow" if snapshot.ready else QUIET)]]
    running = progress_lines(snapshot.workers, present, width)
    if height is None:
        return [*topics, [], *workers, *([[], *running] if running else [])]
    if running:
        running = [[], *_at_most(running, max(height // 4, _LEAST_ROWS))]
        height -= len(running)
    # Workers get up to a third of the remaining lines, topics the rest.
    for_workers = min(len(workers), max(height // 3, _LEAST_ROWS, height - 1 - len(topics)))
    topics = _at_most(topics, height - 1 - for_workers, unseen)
    return [*topics, [], *_at_most(workers, for_workers), *running]


def _topic_lines(topics: Sequence[TopicInfo], present: datetime, width: int | None) -> list[Line]:
    if not topics:
        return [[Cell("No topic has jobs or workers.", QUIET)]]
    largest = max(topic.last_minute.completed for topic in topics)
    busiest_first = sorted(topics, key=_pressing, reverse=True)
    rows: list[Row] = [
        [*topic_row(topic, present), Cell(bar(topic.last_minute.completed, largest, _BAR_WIDTH), "green")]
        for topic in busiest_first
    ]
    return lay_out(*without_empty((*TOPIC_COLUMNS, Column("THROUGHPUT", drop=7)), rows), width)


def _pressing(topic: TopicInfo) -> tuple[int, ...]:
    return (topic.ready + topic.running, topic.last_minute.completed, topic.dead_lettered, topic.waiting)


def _at_most(lines: list[Line], most: int, unseen: int = 0) -> list[Line]:
    """Return at most `most` lines; the last line counts the rest. `unseen` were left out before."""
    if len(lines) <= most:
        return lines
    kept = max(most - 1, 0)
    return [*lines[:kept], [Cell(f"… and {len(lines) - kept - bool(unseen) + unseen:,} more", QUIET)]]
