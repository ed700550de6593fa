"""Times, numbers and counts of jobs as a terminal shows them. Nothing of click, rich or the SDK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from pulse_text import times
from pulse_text.times import format_duration

_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = "▏▎▍▌▋▊▉█"
_EXACT_BELOW = 100_000


def compact(number: int) -> str:
    """Return a count in at most six characters: 99,999, 123k, 4.5M."""
    if abs(number) < _EXACT_BELOW:
        return f"{number:,}"
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(number) >= size:
            scaled = number / size
            # Cut, not rounded: 999,999 is not 1M.
            return f"{int(scaled)}{unit}" if abs(scaled) >= 10 else f"{int(scaled * 10) / 10:g}{unit}"
    raise AssertionError(number)


def sparkline(values: Sequence[int]) -> str:
    """Draw values over time, scaled from 0 to the largest."""
    largest = max(values, default=0)
    if not largest:
        return _BLOCKS[0] * len(values)
    return "".join(_BLOCKS[round(value / largest * (len(_BLOCKS) - 1))] for value in values)


def bar(value: int, largest: int, width: int) -> str:
    """Draw one value relative to the largest. A value above 0 is always visible."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(round(value / largest * width * 8), 1)
    whole, rest = divmod(eighths, 8)
    return _EIGHTHS[-1] * whole + (_EIGHTHS[rest - 1] if rest else "")


_clock: Callable[[], datetime] = times.now


def follow(clock: Callable[[], datetime]) -> None:
    """Take the present from this clock from now on."""
    global _clock
    _clock = clock


def now() -> datetime:
    """Return the present, which ages are relative to: by the server's clock once it has answered."""
    return _clock()


_NOTICEABLE = timedelta(seconds=1)


def ago(moment: datetime, present: datetime) -> str:
    """Return a moment relative to now: 3m ago, in 2h, now."""
    span = present - moment
    if abs(span) < _NOTICEABLE:
        return "now"
    # Whole seconds: tenths would show how long the answer took.
    rounded = timedelta(seconds=round(abs(span).total_seconds()))
    return f"{format_duration(rounded)} ago" if span > timedelta(0) else f"in {format_duration(rounded)}"


def age(moment: datetime | None, present: datetime) -> str:
    """Return how long something has lasted: 3m, or – if it has not begun."""
    if moment is None:
        return "–"
    # Whole seconds, as in `ago`. Never negative: the time of the server is known to the tenth of a second.
    return format_duration(timedelta(seconds=max(round((present - moment).total_seconds()), 0)))


def local(moment: datetime) -> str:
    """Return a moment in the time zone of this machine."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def full(moment: datetime, present: datetime) -> str:
    """Return a moment in both forms: the time, and how long ago."""
    return f"{local(moment)} ({ago(moment, present)})"


# Canceled workflows that a sentence names.
_WORKFLOWS_NAMED = 3


def passed_over(
    locked: int = 0,
    held: int = 0,
    needed: int = 0,
    in_canceled_workflows: int = 0,
    canceled_workflows: Sequence[str] = (),
) -> str:
    """Return sentences about the jobs that an action left unchanged: how many, and why."""
    said = ""
    if locked:
        are, them = ("is", "it") if locked == 1 else ("are", "them")
        said += (
            f" {locked:,} {are} locked by another session of the database. Run the command again for {them}."
        )
    for count, reason in ((held, "another job holds {} unique key"), (needed, "{} workflow has not ended")):
        if count:
            were, its = ("was left as it is", "its") if count == 1 else ("were left as they are", "their")
            said += f" {count:,} {were}: {reason.format(its)}."
    if count := in_canceled_workflows:
        were, they = (
            ("was left as it is", "it waits") if count == 1 else ("were left as they are", "they wait")
        )
        said += (
            f" {count:,} {were}: {they} for other jobs of workflows that were canceled. Retry the workflow: "
        )
        said += (
            "; ".join(f"pulse workflows retry {one}" for one in canceled_workflows[:_WORKFLOWS_NAMED]) + "."
        )
    return said
