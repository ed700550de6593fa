"""Prints the story: a line per event, with the seconds since the start and the process."""

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum

# Longer lines are hard to read, however wide the terminal is.
_WIDEST = 100
_WHO_WIDTH = 8


class Tone(StrEnum):
    """The meaning of a line, as its color."""

    PLAIN = ""
    GOOD = "32"
    BAD = "31"
    FAINT = "2"
    TITLE = "1"


_COLOR_OF = {
    "app": "1",
    "server": "35",
    "worker": "36",
    "worker A": "36",
    "worker B": "33",
    "worker C": "34",
    "office-1": "36",
    "media-1": "33",
}


class Narrator:
    """Writes to standard output, in color if a terminal shows it and NO_COLOR does not forbid it."""

    def __init__(self) -> None:
        self._started_at = time.monotonic()
        is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._has_color = is_terminal and not os.environ.get("NO_COLOR")
        columns = shutil.get_terminal_size((_WIDEST + 1, 24)).columns
        self._width = min(max(40, columns - 1), _WIDEST)
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that cannot show a dash still gets the story

    @property
    def seconds(self) -> float:
        """How long the demo has been running."""
        return time.monotonic() - self._started_at

    def introduce(self, sentence: str, cast: Mapping[str, str]) -> None:
        """Print the introduction, and the list of processes."""
        self._print(self._in(Tone.TITLE, "pulse demo"))
        self.paragraph(sentence)
        self.gap()
        for who, part in cast.items():
            self._print(f"  {self._in(_COLOR_OF.get(who, ''), f'{who:<{_WHO_WIDTH}}')}  {part}")
        self.gap()

    def show(self, who: str, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Print what a process did."""
        clock = f"{self.seconds:6.1f} s"
        margin = " " * (len(clock) + _WHO_WIDTH + 4)
        first, *more = self._wrap(text, margin)
        lead = f"{self._in(Tone.FAINT, clock)}  {self._in(_COLOR_OF.get(who, ''), f'{who:<{_WHO_WIDTH}}')}"
        self._print(f"{lead}  {self._in(tone, first)}")
        for line in more:
            self._print(margin + self._in(tone, line))

    def title(self, title: str, *paragraphs: str) -> None:
        """Print what comes next, and what there is to see in it."""
        self._print("")
        self._print(self._in(Tone.TITLE, title))
        for text in paragraphs:
            self.paragraph(text)
        self.gap()

    def paragraph(self, text: str) -> None:
        """Print text without a speaker."""
        for line in self._wrap(text, "  "):
            self._print("  " + self._in(Tone.FAINT, line))

    def table(self, rows: Iterable[tuple[str, object, str]]) -> None:
        """Print names with their values and a remark, aligned."""
        for name, value, remark in rows:
            self._print(f"  {name:<15} {value:>5}  {self._in(Tone.FAINT, remark)}".rstrip())

    def invite(self, name: str, address: str) -> None:
        """Print an address for the reader to open, so that it is not overlooked."""
        self._print("")
        self._print(f"  {self._in(Tone.TITLE, f'{name}: {address}')}")
        self.paragraph("Open it in a browser and watch from there. It needs no password.")

    def gap(self) -> None:
        """Print an empty line."""
        self._print("")

    def _wrap(self, text: str, margin: str) -> list[str]:
        # An address or a path stays in one piece, to be copied.
        width = self._width - len(margin)
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    def _in(self, color: str, text: str) -> str:
        return f"\x1b[{color}m{text}\x1b[0m" if color and self._has_color else text

    @staticmethod
    def _print(line: str) -> None:
        print(line, flush=True)
