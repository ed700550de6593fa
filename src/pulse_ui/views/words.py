"""Numbers, durations and moments as pages show them; static/times.js does the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

NOTHING = "–"
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def count(number: int | float) -> str:
    """Return a number with thousands separators: 12,345."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def short_count(number: int | float) -> str:
    """Return a number in about three digits: 12.3k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            scaled = number / (1e3 if letter == "k" else size)
            return f"{scaled:.0f}{letter}" if scaled >= 100 else f"{scaled:.1f}".removesuffix(".0") + letter
    return count(number)


def mebibytes(size: int) -> str:
    """Return a size in MiB or GiB: 212 MiB, 1.4 GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def percent(share: float | None) -> str:
    """Return a share in percent: 0.4%, 12%; never 0% for a share above 0."""
    if share is None:
        return NOTHING
    if 0 < share < 0.001:
        return "< 0.1%"
    if share < 0.0995:
        return f"{share * 100:.1f}".removesuffix(".0") + "%"
    # 99.6% is not 100%.
    return f"{min(99, round(share * 100)) if share < 1 else 100}%"


def span(seconds: float) -> str:
    """Return a duration: 3 ms, 1.4 s, 5 min, 2 h 5 min, 3 d 4 h."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 0.001:
        return "0 ms" if seconds == 0 else "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for (size, unit), (smaller, smaller_unit) in zip(_SPANS, (*_SPANS[1:], (1, "s")), strict=True):
        if whole >= size:
            number, rest = divmod(whole, size)
            rest //= smaller
            # Beyond ten of a unit the next smaller one does not matter.
            return f"{number} {unit} {rest} {smaller_unit}" if rest and number < 10 else f"{number} {unit}"
    raise AssertionError(seconds)


def interval_words(interval: timedelta) -> str:
    """Return how often: every 5 min, every 1 h 30 min. Nothing is rounded."""
    milliseconds = interval // timedelta(milliseconds=1)
    parts = []
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")):
        number, milliseconds = divmod(milliseconds, size)
        if number:
            parts.append(f"{number} {unit}")
    return f"every {' '.join(parts)}"


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Return the time relative to now: 5 min ago, in 2 h."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    whole = int(abs(seconds))
    words = f"{whole} s" if whole < 60 else span(whole)
    return f"{words} ago" if seconds > 0 else f"in {words}"


def clock(moment: datetime, zone: ZoneInfo) -> str:
    """Return the time of day: 14:03:07."""
    return moment.astimezone(zone).strftime("%H:%M:%S")


def stamp(moment: datetime, zone: ZoneInfo, now: datetime | None = None) -> str:
    """Return date and time; without the year if it is the current one."""
    there = moment.astimezone(zone)
    today = (now or datetime.now(UTC)).astimezone(zone)
    day = f"{there.day} {there:%b}"
    return f"{day} {there:%H:%M:%S}" if there.year == today.year else f"{day} {there.year} {there:%H:%M:%S}"


def brief(moment: datetime, zone: ZoneInfo, now: datetime | None = None) -> str:
    """Return date and time as `stamp` does, without seconds if there are none."""
    words = stamp(moment, zone, now)
    return words if moment.second else words.removesuffix(":00")


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return the number with its noun: 1 job, 2 jobs."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"
