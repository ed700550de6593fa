"""The charts of the overview and of a topic, as plain numbers. A template draws the shapes.

Horizontal positions are in percent and vertical ones in pixels, so that a chart takes any width without
stretching its text. Only lines are drawn in a box of LINE_WIDTH by HEIGHT that stretches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

from pulse import Latency, Minute
from pulse_ui import words

_LEAST_TOP_PERCENT = 1.0


def charts_of(
    buckets: Sequence[Bucket], minutes: int, wait: Latency, run: Latency, zone: ZoneInfo
) -> tuple[Chart, ...]:
    """Return the charts of a span of minutes; `wait` and `run` are of the whole span."""
    if not buckets:
        return ()
    drawing = ChartDrawing(buckets, minutes, zone)
    return (
        _throughput(drawing),
        _failures(drawing),
        _latency(drawing, "wait", "Queue wait", "From due to claimed", wait, lambda bucket: bucket.wait),
        _latency(drawing, "run", "Run time", "From claimed to reported", run, lambda bucket: bucket.run),
    )


def _throughput(drawing: ChartDrawing) -> Chart:
    buckets = drawing.buckets
    completed = [bucket.completed for bucket in buckets]
    failed = [bucket.failed for bucket in buckets]
    submitted = [bucket.submitted for bucket in buckets]
    largest = max(max(bucket.attempts, bucket.submitted) for bucket in buckets)
    scale = linear(largest, words.short_count)
    busiest = max(buckets, key=lambda bucket: bucket.completed)
    return Chart(
        name="throughput",
        title="Throughput",
        note=f"Attempts and submitted jobs per {drawing.per}",
        summary=(
            f"{words.count(sum(completed))} attempts completed, {words.count(sum(failed))} failed, "
            f"{words.plural(sum(submitted), 'job')} submitted. "
            f"Most completed at {moment(busiest, drawing.zone)}: {words.count(busiest.completed)}."
        ),
        series=(
            Series("Completed", "series-completed", False, words.short_count(sum(completed))),
            Series("Failed", "series-failed", False, words.short_count(sum(failed))),
            Series("Submitted", "series-submitted", True, words.short_count(sum(submitted))),
        ),
        bars=(
            *drawing.bars("series-completed", completed, [0] * len(buckets), scale),
            *drawing.bars("series-failed", failed, completed, scale),
        ),
        lines=(drawing.line("series-submitted", submitted, scale),),
        value_marks=value_marks(scale),
        time_marks=drawing.time_marks,
        readings=drawing.readings(
            lambda bucket: (
                words.count(bucket.completed),
                words.count(bucket.failed),
                words.count(bucket.submitted),
            )
        ),
        current=drawing.current,
        is_empty=largest == 0,
    )


def _failures(drawing: ChartDrawing) -> Chart:
    buckets = drawing.buckets
    rates = [None if bucket.failure_rate is None else bucket.failure_rate * 100 for bucket in buckets]
    measured = [rate for rate in rates if rate is not None]
    scale = linear(max(measured, default=0.0) or _LEAST_TOP_PERCENT, lambda value: f"{value:g}%", whole=False)
    attempts = sum(bucket.attempts for bucket in buckets)
    overall = sum(bucket.failed for bucket in buckets) / attempts if attempts else None
    return Chart(
        name="failures",
        title="Failure rate",
        note=f"Of all attempts per {drawing.per}",
        summary=(
            f"{words.percent(overall)} of {words.plural(attempts, 'attempt')} failed; "
            f"at the worst {words.percent(max(measured, default=0.0) / 100)} in a column."
        ),
        series=(Series("Failed", "series-failed", True, words.percent(overall)),),
        bars=(),
        lines=(drawing.line("series-failed", rates, scale),),
        value_marks=value_marks(scale),
        time_marks=drawing.time_marks,
        readings=drawing.readings(_failure_words),
        current=drawing.current,
        is_empty=not measured,
    )


def _failure_words(bucket: Bucket) -> tuple[str]:
    if not bucket.attempts:
        return (words.NOTHING,)
    failed, attempts = words.count(bucket.failed), words.count(bucket.attempts)
    return (f"{words.percent(bucket.failure_rate)} ({failed} of {attempts})",)


def _latency(
    drawing: ChartDrawing,
    name: str,
    title: str,
    meaning: str,
    overall: Latency,
    latency_of: Callable[[Bucket], Latency],
) -> Chart:
    latencies = [latency_of(bucket) for bucket in drawing.buckets]
    measured = [latency for latency in latencies if latency.count]
    scale = durations(
        min((latency.p50 for latency in measured), default=0.001),
        max((latency.p99 for latency in measured), default=1.0),
    )
    columns = tuple(
        (
            label,
            f"series-{name} {label}",
            [getattr(latency, label) if latency.count else None for latency in latencies],
        )
        for label in ("p50", "p95", "p99")
    )
    slowest = "" if drawing.per == "minute" else f"; slowest of {drawing.per}"
    return Chart(
        name=name,
        title=title,
        note=f"{meaning}, log scale{slowest}",
        summary=(
            f"{meaning}: half took at most {words.span(overall.p50)}, "
            f"95 of 100 {words.span(overall.p95)}, 99 of 100 {words.span(overall.p99)}."
            if overall.count
            else f"{meaning}: nothing was measured."
        ),
        series=tuple(
            Series(label, style, True, total)
            for (label, style, _), total in zip(columns, latency_words(overall), strict=True)
        ),
        bars=(),
        # The median last, so that it is on top.
        lines=tuple(drawing.line(style, values, scale) for _, style, values in reversed(columns)),
        value_marks=value_marks(scale),
        time_marks=drawing.time_marks,
        readings=drawing.readings(lambda bucket: latency_words(latency_of(bucket))),
        current=drawing.current,
        is_empty=not measured,
    )


def latency_words(latency: Latency) -> tuple[str, str, str]:
    """Return p50, p95 and p99 as words."""
    if not latency.count:
        return words.NOTHING, words.NOTHING, words.NOTHING
    return words.span(latency.p50), words.span(latency.p95), words.span(latency.p99)


# ---------------------------------------------------------------- depth
# Ready and running jobs of a topic, and the age of the oldest ready job.


def depth_charts_of(buckets: Sequence[Bucket], minutes: int, zone: ZoneInfo) -> tuple[Chart, ...]:
    """Return the charts of a span of minutes."""
    if not buckets:
        return ()
    drawing = ChartDrawing(buckets, minutes, zone)
    return _depth(drawing), _oldest(drawing)


def _depth(drawing: ChartDrawing) -> Chart:
    buckets = drawing.buckets
    ready, running = [bucket.ready for bucket in buckets], [bucket.running for bucket in buckets]
    sampled = [bucket for bucket in buckets if bucket.ready is not None]
    scale = linear(max((number or 0 for number in (*ready, *running)), default=0), words.short_count)
    deepest = max(sampled, key=lambda bucket: bucket.ready or 0, default=None)
    return Chart(
        name="depth",
        title="Depth",
        note="Sampled once a minute" + _largest(drawing, "the most"),
        summary=(
            f"At most {words.plural(deepest.ready or 0, 'ready job')}, at {moment(deepest, drawing.zone)}; "
            f"at most {words.count(max(bucket.running or 0 for bucket in sampled))} running."
            if deepest
            else "Nothing was sampled."
        ),
        series=(
            Series("Ready", "series-wait", True, _last_count(ready)),
            Series("Running", "series-run", True, _last_count(running)),
        ),
        bars=(),
        lines=(
            drawing.line("series-run", running, scale),
            drawing.line("series-wait", ready, scale),
        ),
        value_marks=value_marks(scale),
        time_marks=drawing.time_marks,
        readings=drawing.readings(lambda bucket: (_count(bucket.ready), _count(bucket.running))),
        current=drawing.current,
        is_empty=deepest is None,
    )


def _oldest(drawing: ChartDrawing) -> Chart:
    ages = [bucket.oldest_seconds for bucket in drawing.buckets]
    measured = [age for age in ages if age is not None]
    scale = durations(min((age for age in measured if age), default=1.0), max(measured, default=1.0))
    return Chart(
        name="oldest",
        title="Oldest ready job",
        note="How long it has been due, log scale" + _largest(drawing, "the oldest"),
        summary=(
            f"The oldest ready job had been due for at most {words.span(max(measured))}."
            if measured
            else "Nothing was sampled."
        ),
        series=(Series("Oldest", "series-wait", True, age_words(measured[-1] if measured else None)),),
        bars=(),
        lines=(drawing.line("series-wait", ages, scale),),
        value_marks=value_marks(scale),
        time_marks=drawing.time_marks,
        readings=drawing.readings(lambda bucket: (age_words(bucket.oldest_seconds),)),
        current=drawing.current,
        is_empty=not measured,
    )


def age_words(seconds: float | None) -> str:
    """Return the age of the oldest ready job. 0 seconds: there was none."""
    if seconds is None:
        return words.NOTHING
    return words.span(seconds) if seconds else "none"


def _largest(drawing: ChartDrawing, which: str) -> str:
    return "" if drawing.per == "minute" else f"; {which} of {drawing.per}"


def _last_count(numbers: Sequence[int | None]) -> str:
    return next(
        (words.short_count(number) for number in reversed(numbers) if number is not None), words.NOTHING
    )


def _count(number: int | None) -> str:
    return words.NOTHING if number is None else words.count(number)


# ---------------------------------------------------------------- geometry

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
class BucketReading:
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
    readings: tuple[BucketReading, ...]
    current: tuple[float, float]
    """The left edge and width, in percent, of the current column."""
    is_empty: bool


class ChartDrawing:
    """The columns that the charts of one span share."""

    def __init__(self, buckets: Sequence[Bucket], minutes: int, zone: ZoneInfo) -> None:
        self.buckets = buckets
        self.zone = zone
        self._column = 100 / len(buckets)
        shown = len(buckets) * buckets[0].minutes
        ticks = clock_ticks(buckets[0].at, shown, _CLOCK_EVERY[minutes], zone)
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

    def readings(self, values: Callable[[Bucket], tuple[str, ...]]) -> tuple[BucketReading, ...]:
        return tuple(
            BucketReading(moment(bucket, self.zone), values(bucket), bucket.is_over)
            for bucket in self.buckets
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


# ---------------------------------------------------------------- scales and buckets

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MOST_TICKS = 4
"""Above the baseline. More would be closer than the height of a line of text."""

# The usual units instead of powers of ten.
_DURATIONS = (
    (0.001, "1 ms"),
    (0.01, "10 ms"),
    (0.1, "100 ms"),
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3_600.0, "1 h"),
    (21_600.0, "6 h"),
    (86_400.0, "1 d"),
    (864_000.0, "10 d"),
)

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Tick:
    """A round value and its position: 0 is the bottom or the left, 1 the top or the right."""

    place: float
    label: str
    is_minor: bool = False
    """Labeled only if there is space."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to positions between 0 and 1."""

    ticks: tuple[Tick, ...]
    place: Callable[[float], float]


def linear(largest: float, label: Callable[[float], str], *, whole: bool = True) -> Scale:
    """Return a scale from 0 to a round value at or above the largest. `whole`: integer ticks only."""
    step = _round_step(largest / _MOST_TICKS)
    if whole:
        step = max(1.0, math.ceil(step))
    count = max(1, math.ceil(largest / step - 1e-9))
    top = step * count
    ticks = tuple(Tick(number / count, label(step * number)) for number in range(count + 1))
    return Scale(ticks, lambda value: min(1.0, max(0.0, value / top)))


def durations(shortest: float, longest: float) -> Scale:
    """Return a logarithmic scale of seconds between two round durations. 0 is at its bottom."""
    last = len(_DURATIONS) - 1
    low = max((at for at, (seconds, _) in enumerate(_DURATIONS) if seconds <= shortest), default=0)
    high = min((at for at, (seconds, _) in enumerate(_DURATIONS) if seconds >= longest), default=last)
    # At least two steps apart: small changes should not look like jumps.
    while high - low < 2:
        low, high = max(0, low - 1), min(last, high + 1)
    bottom = math.log(_DURATIONS[low][0])
    height = math.log(_DURATIONS[high][0]) - bottom

    def place(seconds: float) -> float:
        if seconds <= 0:
            return 0.0
        return min(1.0, max(0.0, (math.log(seconds) - bottom) / height))

    ticks = tuple(Tick(place(seconds), label) for seconds, label in _DURATIONS[low : high + 1])
    return Scale(ticks, place)


def clock_ticks(start: datetime, minutes: int, every: int, zone: ZoneInfo) -> tuple[Tick, ...]:
    """Return the round times of day of a span, in the zone.

    `every` is in minutes. Halfway between two of them is a minor tick.
    """
    ticks = []
    for number in range(minutes):
        there = (start + number * _MINUTE).astimezone(zone)
        minute_of_day = there.hour * 60 + there.minute
        if minute_of_day % (every // 2) == 0:
            ticks.append(Tick(number / minutes, f"{there:%H:%M}", is_minor=minute_of_day % every != 0))
    return tuple(ticks)


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5, 10, 20, … at or above this."""
    if least <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(least))
    return next(step * size for step in _STEPS if step * size >= least * (1 - 1e-9))


MINUTES_TOGETHER = {60: 1, 360: 5, 1_440: 20}
"""The minutes per column for each span: 60 to 72 columns."""
NO_LATENCY = Latency(0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The counts of consecutive minutes."""

    at: datetime
    minutes: int
    is_over: bool
    """False for the current one, which still changes."""
    submitted: int
    completed: int
    failed: int
    wait: Latency
    """Of the slowest minute: percentiles cannot be summed, and the worst matters."""
    run: Latency
    ready: int | None = None
    """The most in a minute, as of the next two; None if nothing was sampled."""
    running: int | None = None
    oldest_seconds: float | None = None

    @property
    def until(self) -> datetime:
        return self.at + timedelta(minutes=self.minutes)

    @property
    def attempts(self) -> int:
        return self.completed + self.failed

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed; None if there were none."""
        return self.failed / self.attempts if self.attempts else None


def buckets_of(minutes: Sequence[Minute], together: int) -> list[Bucket]:
    """Return the minutes in groups that start at round times, oldest first.

    An incomplete first group is left out: it would look like a drop.
    """
    timed = [(minute.at, minute) for minute in minutes if minute.at is not None]
    groups = [
        list(group)
        for _, group in groupby(timed, key=lambda pair: int(pair[0].timestamp()) // 60 // together)
    ]
    if len(groups) > 1 and len(groups[0]) < together:
        del groups[0]
    return [
        _bucket(group[0][0], [minute for _, minute in group], together, is_over=place < len(groups) - 1)
        for place, group in enumerate(groups)
    ]


def _bucket(at: datetime, minutes: Sequence[Minute], together: int, *, is_over: bool) -> Bucket:
    return Bucket(
        at=at,
        minutes=together,
        is_over=is_over,
        submitted=sum(minute.submitted for minute in minutes),
        completed=sum(minute.completed for minute in minutes),
        failed=sum(minute.failed for minute in minutes),
        wait=_slowest([minute.wait for minute in minutes]),
        run=_slowest([minute.run for minute in minutes]),
        ready=max((minute.ready for minute in minutes if minute.ready is not None), default=None),
        running=max((minute.running for minute in minutes if minute.running is not None), default=None),
        oldest_seconds=max(
            (minute.oldest_seconds for minute in minutes if minute.oldest_seconds is not None), default=None
        ),
    )


def _slowest(latencies: Sequence[Latency]) -> Latency:
    measured = [latency for latency in latencies if latency.count]
    if not measured:
        return NO_LATENCY
    return Latency(
        sum(latency.count for latency in measured),
        max(latency.p50 for latency in measured),
        max(latency.p95 for latency in measured),
        max(latency.p99 for latency in measured),
    )
