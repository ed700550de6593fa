"""The charts of the overview: throughput, failures, queue wait and run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo

from pulse import Latency
from pulse_ui import words
from pulse_ui.views.overview import scales
from pulse_ui.views.overview.drawing import Chart, Drawing, Series, moment, value_marks
from pulse_ui.views.overview.scales import Bucket

_LEAST_TOP_PERCENT = 1.0


def charts_of(
    buckets: Sequence[Bucket], minutes: int, wait: Latency, run: Latency, zone: ZoneInfo
) -> tuple[Chart, ...]:
    """Return the charts of a span of minutes; `wait` and `run` are of the whole span."""
    if not buckets:
        return ()
    drawing = Drawing(buckets, minutes, zone)
    return (
        _throughput(drawing),
        _failures(drawing),
        _latency(drawing, "wait", "Queue wait", "From due to claimed", wait, lambda bucket: bucket.wait),
        _latency(drawing, "run", "Run time", "From claimed to reported", run, lambda bucket: bucket.run),
    )


def _throughput(drawing: Drawing) -> Chart:
    buckets = drawing.buckets
    completed = [bucket.completed for bucket in buckets]
    failed = [bucket.failed for bucket in buckets]
    submitted = [bucket.submitted for bucket in buckets]
    largest = max(max(bucket.attempts, bucket.submitted) for bucket in buckets)
    scale = scales.linear(largest, words.short_count)
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


def _failures(drawing: Drawing) -> Chart:
    buckets = drawing.buckets
    rates = [None if bucket.failure_rate is None else bucket.failure_rate * 100 for bucket in buckets]
    measured = [rate for rate in rates if rate is not None]
    scale = scales.linear(
        max(measured, default=0.0) or _LEAST_TOP_PERCENT, lambda value: f"{value:g}%", whole=False
    )
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
    drawing: Drawing,
    name: str,
    title: str,
    meaning: str,
    overall: Latency,
    latency_of: Callable[[Bucket], Latency],
) -> Chart:
    latencies = [latency_of(bucket) for bucket in drawing.buckets]
    measured = [latency for latency in latencies if latency.count]
    scale = scales.durations(
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
