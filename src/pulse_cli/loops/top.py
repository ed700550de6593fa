"""Runs `pulse top`: one thread polls the server, the other draws and reads keys."""

from __future__ import annotations

import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse_cli import tuning
from pulse_cli.output import Output
from pulse_cli.terminal import make_console, now, print_lines, styled, table_width
from pulse_cli.views.overview_snapshot import Snapshot
from pulse_cli.views.overview_top import frame
from pulse_cli.views.shapes import snapshot_shape

if TYPE_CHECKING:
    from pulse import SyncPulse

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
                    *(seen.snapshot, seen.trend, f"{title}  {ways_out}", seen.trouble),
                    *(size.width, size.height),
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
