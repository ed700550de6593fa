"""The geometry of a chart as plain numbers. A template draws the shapes.

Horizontal positions are in percent and vertical ones in pixels, so that a chart takes any width without
stretching its text. Only lines are drawn in a box of LINE_WIDTH by HEIGHT that stretches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from pulse_ui.views.overview import scales
from pulse_ui.views.overview.scales import Bucket, Scale

HEIGHT = 160
LINE_WIDTH = 1_000
_BAR_SHARE = 0.76
"""The width of a bar in its column; the rest is the gap."""
_LEAST_BAR = 1.5
"""Pixels: one failure among thousands stays visible."""
_CLOCK_EVERY = {60: 10, 360: 60, 1_440: 240}
"""Minutes between two time labels for each span: six or seven fit a phone."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a chart."""

    name: str
    style: str
    """The classes of its mark."""
    is_line: bool
    total: str = ""
    """The total of the whole span."""


@dataclass(frozen=True, slots=True)
class Bar:
    style: str
    left: float
    width: float
    top: float
    height: float
    is_over: bool


@dataclass(frozen=True, slots=True)
class Line:
    style: str
    path: str
    dots: str
    """The path of isolated points."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A tick: percent from the left, or pixels from the top."""

    at: float
    label: str
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The exact values of one column, in the order of the series."""

    when: str
    values: tuple[str, ...]
    is_over: bool


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    title: str
    note: str
    summary: str
    """The chart in a sentence, for screen readers."""
    series: tuple[Series, ...]
    bars: tuple[Bar, ...]
    lines: tuple[Line, ...]
    value_marks: tuple[Mark, ...]
    time_marks: tuple[Mark, ...]
    readings: tuple[Reading, ...]
    current: tuple[float, float]
    """The left edge and width, in percent, of the current column."""
    is_empty: bool


class Drawing:
    """The columns that the charts of one span share."""

    def __init__(self, buckets: Sequence[Bucket], minutes: int, zone: ZoneInfo) -> None:
        self.buckets = buckets
        self.zone = zone
        self._column = 100 / len(buckets)
        shown = len(buckets) * buckets[0].minutes
        ticks = scales.clock_ticks(buckets[0].at, shown, _CLOCK_EVERY[minutes], zone)
        self.time_marks = tuple(Mark(_round(tick.place * 100), tick.label, tick.is_minor) for tick in ticks)
        self.per = "minute" if buckets[0].minutes == 1 else f"{buckets[0].minutes} minutes"

    @property
    def current(self) -> tuple[float, float]:
        return _round(100 - self._column), _round(self._column)

    def bars(self, style: str, values: Sequence[int], below: Sequence[int], scale: Scale) -> list[Bar]:
        """Return a bar for each value above 0, stacked on `below`."""
        bars = []
        for place, (value, under) in enumerate(zip(values, below, strict=True)):
            if value:
                top = HEIGHT * (1 - scale.place(value + under))
                bottom = HEIGHT * (1 - scale.place(under))
                height = max(_LEAST_BAR, bottom - top)
                bars.append(
                    Bar(
                        style,
                        _round((place + (1 - _BAR_SHARE) / 2) * self._column),
                        _round(_BAR_SHARE * self._column),
                        _round(bottom - height),
                        _round(height),
                        self.buckets[place].is_over,
                    )
                )
        return bars

    def line(self, style: str, values: Sequence[float | None], scale: Scale) -> Line:
        """Return a line through the values, with gaps where there is none.

        It ends before the current column, whose value still changes and is drawn as a dot.
        """
        line, dots = "", ""
        for place, value in enumerate(values):
            if value is None:
                continue
            x = _round((place + 0.5) * self._column * LINE_WIDTH / 100)
            y = _round(HEIGHT * (1 - scale.place(value)))
            comes_from = self._is_on_line(values, place - 1)
            if self._is_on_line(values, place) and comes_from:
                line += f"L{x:g} {y:g}"
            elif self._is_on_line(values, place) and self._is_on_line(values, place + 1):
                line += f"M{x:g} {y:g}"
            else:
                # A line of length 0 with round ends is a dot.
                dots += f"M{x:g} {y:g}h0"
        return Line(style, line, dots)

    def _is_on_line(self, values: Sequence[float | None], place: int) -> bool:
        return 0 <= place < len(values) and values[place] is not None and self.buckets[place].is_over

    def readings(self, values: Callable[[Bucket], tuple[str, ...]]) -> tuple[Reading, ...]:
        return tuple(
            Reading(moment(bucket, self.zone), values(bucket), bucket.is_over) for bucket in self.buckets
        )


def value_marks(scale: Scale) -> tuple[Mark, ...]:
    return tuple(Mark(_round(HEIGHT * (1 - tick.place)), tick.label) for tick in scale.ticks)


def moment(bucket: Bucket, zone: ZoneInfo) -> str:
    """Return the time of a bucket: 14:03, or 14:00–14:05 for several minutes."""
    start = f"{bucket.at.astimezone(zone):%H:%M}"
    return start if bucket.minutes == 1 else f"{start}–{bucket.until.astimezone(zone):%H:%M}"


def _round(number: float) -> float:
    """Round to two decimals: less than a pixel, and a smaller page."""
    return round(number, 2)
