"""The charts of the depth of a topic: ready and running jobs, and the age of the oldest ready job."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from pulse_ui import words
from pulse_ui.views.overview import scales
from pulse_ui.views.overview.drawing import Chart, Drawing, Series, moment, value_marks
from pulse_ui.views.overview.scales import Bucket


def depth_charts_of(buckets: Sequence[Bucket], minutes: int, zone: ZoneInfo) -> tuple[Chart, ...]:
    """Return the charts of a span of minutes."""
    if not buckets:
        return ()
    drawing = Drawing(buckets, minutes, zone)
    return _depth(drawing), _oldest(drawing)


def _depth(drawing: Drawing) -> Chart:
    buckets = drawing.buckets
    ready, running = [bucket.ready for bucket in buckets], [bucket.running for bucket in buckets]
    sampled = [bucket for bucket in buckets if bucket.ready is not None]
    scale = scales.linear(max((number or 0 for number in (*ready, *running)), default=0), words.short_count)
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


def _oldest(drawing: Drawing) -> Chart:
    ages = [bucket.oldest_seconds for bucket in drawing.buckets]
    measured = [age for age in ages if age is not None]
    scale = scales.durations(min((age for age in measured if age), default=1.0), max(measured, default=1.0))
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


def _largest(drawing: Drawing, which: str) -> str:
    return "" if drawing.per == "minute" else f"; {which} of {drawing.per}"


def _last_count(numbers: Sequence[int | None]) -> str:
    return next(
        (words.short_count(number) for number in reversed(numbers) if number is not None), words.NOTHING
    )


def _count(number: int | None) -> str:
    return words.NOTHING if number is None else words.count(number)
