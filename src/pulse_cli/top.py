"""The queue on one screen: totals, what needs attention, topics, workers, jobs that have progress.

One thread polls the server, the other draws and reads keys. What needs attention is `pulse attention`, too:
most harmful first, with the command that shows more.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulse_cli import tuning
from pulse_cli.jobs.views import progress_lines
from pulse_cli.output import Output, Shape, View, fields_shape, time_shape
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
    make_console,
    now,
    print_lines,
    sparkline,
    styled,
    table_width,
    without_empty,
)
from pulse_cli.topics.views import TOPIC_COLUMNS, dispatch_shape, topic_row, topic_shape
from pulse_cli.workers import WORKER_COLUMNS, gone_first, worker_row, worker_shape
from pulse_text import printable

if TYPE_CHECKING:
    import pulse
    from pulse import DispatchStatus, Finding, SyncPulse, TopicInfo, TopicPause, WorkerInfo

# The sequence that an arrow or function key sends, which may contain a q.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O.|.)?")


class Keys:
    """Pressed keys. Without a keyboard there are none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def are_available(self) -> bool:
        """True if there is a keyboard."""
        return self._descriptor is not None

    def pressed(self, seconds: float) -> str:
        """Wait for a key, at most this long. Returns the pressed keys, or an empty string."""
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return ""
        typed = os.read(self._descriptor, 64)
        if not typed:  # the terminal has gone away
            raise KeyboardInterrupt
        return _SEQUENCE.sub("", typed.decode(errors="replace"))


@contextmanager
def listening() -> Iterator[Keys]:
    """Read keys for the length of a block, then restore the terminal."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)  # Ctrl-C stays a signal
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


_QUITS = frozenset("qQ\x04")


def show_once(client: SyncPulse, output: Output) -> None:
    """Print one snapshot."""
    snapshot = take_snapshot(client)
    if output.is_for_people:
        print_lines(frame(snapshot, (), client.address, "", table_width(), None))
    else:
        output.show_shape(snapshot_shape(snapshot))


def watch_live(client: SyncPulse, interval: timedelta) -> None:
    """Show live snapshots until q or Ctrl-C."""
    with Feed(client, interval) as feed, listening() as keys:
        try:
            _draw(feed, keys, client.address, interval)
        except KeyboardInterrupt:
            return  # the same as q


def _draw(feed: Feed, keys: Keys, address: str, interval: timedelta) -> None:
    from rich.console import Group
    from rich.live import Live

    console = make_console()
    drawn: object = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            seen = feed.seen
            if seen.failure is not None:
                raise seen.failure
            size, moment = console.size, now().astimezone().strftime("%H:%M:%S")
            if drawn != (seen, size, moment):
                ways_out = "q quits" if keys.are_available else "Ctrl-C quits"
                title = f"{address}  {moment}  every {interval.total_seconds():g}s"
                if seen.snapshot is None and not seen.trouble:
                    title += "  connecting…"
                lines = frame(
                    seen.snapshot,
                    seen.trend,
                    f"{title}  {ways_out}",
                    seen.trouble,
                    size.width,
                    size.height,
                )
                live.update(Group(*map(styled, lines)), refresh=True)
                drawn = (seen, size, moment)
            if _QUITS & set(keys.pressed(tuning.KEY_SECONDS)):
                return


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The latest snapshot and errors."""

    snapshot: Snapshot | None = None
    trend: Sequence[int] = ()
    trouble: str = ""
    """Why the snapshot is stale."""
    failure: Exception | None = None
    """Why polling ended."""


class Feed:
    """Polls the server in its own thread, so that a slow server does not block the keys."""

    def __init__(self, client: SyncPulse, interval: timedelta) -> None:
        self.seen = Seen()
        self._client = client
        self._interval_seconds = interval.total_seconds()
        self._trend: deque[int] = deque(maxlen=tuning.TREND_LENGTH)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="pulse-top", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _ask(self) -> None:
        import pulse

        while not self._is_over.is_set():
            try:
                snapshot = take_snapshot(self._client)
                self._trend.append(snapshot.ready)
                self.seen = Seen(snapshot, tuple(self._trend))
            except pulse.Unavailable as error:
                self.seen = Seen(self.seen.snapshot, self.seen.trend, error.message)
            except (pulse.ClientClosed, CancelledError):
                return  # the client was closed
            except Exception as error:
                self.seen = Seen(failure=error)
                return
            self._is_over.wait(self._interval_seconds)


def take_snapshot(client: SyncPulse) -> Snapshot:
    """Fetch a snapshot. It holds the busiest topics if there are many."""
    dispatch = client.dispatch_status()
    page = client.list_topics(busiest=True, limit=tuning.LARGEST_PAGE)
    found = tuple(client.findings())
    return Snapshot(dispatch, page.topics, client.workers(), now(), page.sum, found, page.total)


# ---------------------------------------------------------------- the screen

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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of the server, and when they came by the clock of this machine."""

    dispatch: DispatchStatus
    topics: Sequence[TopicInfo]
    workers: Sequence[WorkerInfo]
    at: datetime
    total: TopicInfo | None = None
    """The sum of all topics, where `topics` are only the busiest."""
    findings: Sequence[Finding] = ()
    """What needs attention, most harmful first."""
    topic_count: int = 0
    """The number of all topics, where `topics` are only the busiest."""

    @property
    def everything(self) -> Sequence[TopicInfo]:
        """The topics that add up to the whole queue."""
        return self.topics if self.total is None else (self.total,)

    @property
    def ready(self) -> int:
        """How many jobs are ready to run."""
        return sum(topic.ready for topic in self.everything)


# ---------------------------------------------------------------- what needs attention

_FIELDS = ("kind", "urgent", "topic", "worker_id", "sentence", "harm")
# The next command by kind, with {} for the topic. A later server may have kinds that are not here.
_NEXT: Mapping[str, str] = {
    "paused": "pulse dispatch status",
    "scheduler": "pulse schedules list",
    "dead": "pulse dead-letters --topic {}",
    "failing": "pulse jobs list --status RETRYING --topic {}",
    "starving": "pulse workers",
    "old": "pulse jobs list --status PENDING --topic {}",
    "limited": "pulse topics limits {}",
    "flood": "pulse lanes {}",
    "long": "pulse jobs list --status RUNNING --topic {}",
    "worker": "pulse workers --jobs",
    "silent": "pulse workers --jobs",
    "memory": "pulse workers",
}


def finding_view() -> View[pulse.Finding]:
    """Return the view of a list of findings."""
    columns = (Column(""), Column("FINDING", shortest=20), Column("NEXT", drop=1))

    def row(finding: pulse.Finding) -> Row:
        return [*_words(finding), Cell(_next(finding), QUIET)]

    return View(columns, row, finding_shape, _FIELDS)


def finding_lines(found: Sequence[pulse.Finding], most: int) -> Iterator[Line]:
    """Yield the first findings, and a line that counts the rest."""
    for finding in found[:most]:
        mark, words = _words(finding)
        yield [mark, Cell(f" {words.text}", words.style)]
    if len(found) > most:
        yield [Cell(f"… {len(found) - most:,} more need attention. See: pulse attention", QUIET)]


def _words(finding: pulse.Finding) -> tuple[Cell, Cell]:
    style = "bold red" if finding.urgent else WARNING
    subject = finding.topic or finding.worker_id
    words = f"{subject} {finding.sentence}" if subject else finding.sentence
    return Cell("✕" if finding.urgent else "!", style), Cell(printable.one_line(words))


def _next(finding: pulse.Finding) -> str:
    return printable.one_line(_NEXT.get(finding.kind, "").format(shlex.quote(finding.topic or "")))


def snapshot_shape(snapshot: Snapshot) -> Shape:
    """The queue at one moment."""
    return {
        "at": time_shape(snapshot.at),
        "dispatch": dispatch_shape(snapshot.dispatch, snapshot.topics, snapshot.total),
        "topics": [topic_shape(topic) for topic in snapshot.topics],
        "workers": [worker_shape(worker) for worker in snapshot.workers],
        "findings": [finding_shape(finding) for finding in snapshot.findings],
    }


def finding_shape(finding: pulse.Finding) -> Shape:
    """What needs attention about a topic, a worker or the queue."""
    return fields_shape(finding, "kind urgent topic worker_id sentence harm")
