"""The settings of a topic, declared once: each entry's name, kind, bounds, texts, and who may set it.

Server, SDK, CLI, dashboard and the reference read this module. A new entry is one line of `TopicEntries`, a
field of the same name in the message `TopicEntries`, and the code that applies it. Nothing here does I/O, and
nothing imports gRPC: every command of the CLI reads it.

A problem with a value is a ValueError whose text completes the sentence that begins with the name of the
entry, so that each door states the same: "running is 0: it must be from 1 to 1,000,000."
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, TypeVar, get_args, get_type_hints

from pulse.errors import InvalidArgument
from pulse_text import printable
from pulse_text.times import format_exact, parse_duration

DEFAULT: Literal["default"] = "default"
"""In place of a value: hand the entry back to the code, or to the settings of the server."""
Default: TypeAlias = Literal["default"]
Keep: TypeAlias = timedelta | Literal["forever"]
"""How long finished jobs are kept."""

_SHOWN = 60  # characters of a wrong value, so that the sentence stays one line
_MILLION = 1_000_000
V = TypeVar("V")
_LONGEST = timedelta(days=3650)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_LONGEST_NAME = 255


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Rate:
    """The most starts in any period: `pulse.Rate(100, per=timedelta(minutes=1))`."""

    starts: int
    per: timedelta

    def __post_init__(self) -> None:
        _checked("Rate(…)", RATE, self)

    def __str__(self) -> str:
        return RATE.text(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delays between attempts: `first`, then each `factor` times the last, at most `longest`.

    Each is drawn at random from the range of `jitter` around it: with 0.2, from 80% to 120%.
    """

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(hours=1)
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _checked("Backoff(…)", BACKOFF, self)

    def __str__(self) -> str:
        return BACKOFF.text(self)


def _checked(name: str, kind: Kind, value: object) -> None:
    try:
        kind.check(value)
    except ValueError as problem:
        raise InvalidArgument(f"{name} {problem}") from None


# ---------------------------------------------------------------- kinds of values


class Kind:
    """A kind of value: its checks, and its forms as a text and in a document."""

    takes = ""
    """What an option takes, for the help: N, DURATION."""

    def check(self, value: Any) -> None:
        """Raise a ValueError with the problem."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """Return the value of a text, unchecked. Raises a ValueError with the problem."""
        raise NotImplementedError

    def text(self, value: Any) -> str:
        """Return the text of a value, as `parse` reads it."""
        return str(value)

    def words(self, value: Any) -> str:
        """Return the value as people read it."""
        return self.text(value)

    def to_json(self, value: Any) -> Any:
        """Return the value as it is stored."""
        return value

    def from_json(self, stored: Any) -> Any:
        return stored


@dataclass(frozen=True)
class Count(Kind):
    """A whole number."""

    most: int
    takes = "N"

    def check(self, value: Any) -> None:
        if type(value) is not int:
            raise ValueError(f"is {value!r}: it must be a whole number from 1 to {self.most:,}.")
        if not 1 <= value <= self.most:
            raise ValueError(f"is {value}: it must be from 1 to {self.most:,}.")

    def parse(self, text: str) -> int:
        digits = text.strip()
        # Longer numbers are not even converted.
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise ValueError(f"{text[:_SHOWN]!r} is not a whole number from 1 to {self.most:,}.")
        return int(digits)


@dataclass(frozen=True)
class Span(Kind):
    """A duration."""

    longest: timedelta = _LONGEST
    takes = "DURATION"

    def check(self, value: Any) -> None:
        _check_span(value)
        if not timedelta(0) < value <= self.longest:
            shown = format_exact(value) if value > timedelta(0) else str(value)
            raise ValueError(f"is {shown}: it must be above zero and at most {self.longest.days} days.")

    def parse(self, text: str) -> timedelta:
        return parse_duration(text)

    def text(self, value: timedelta) -> str:
        return format_exact(value)

    def to_json(self, value: timedelta) -> float:
        return value.total_seconds()

    def from_json(self, stored: float) -> timedelta:
        return timedelta(seconds=stored)


class Keeping(Kind):
    """How long finished jobs are kept: a duration, or forever."""

    takes = "DURATION|forever"
    shortest = timedelta(minutes=1)

    def check(self, value: Any) -> None:
        if value == "forever":
            return
        _check_span(value, 'or "forever"')
        if value < self.shortest:
            raise ValueError(
                f"is {format_exact(max(value, timedelta(0)))}, below a minute: a submit that is repeated has "
                "to find its job."
            )
        if value > _LONGEST:
            raise ValueError(f"is longer than {_LONGEST.days} days: keep them forever instead.")

    def parse(self, text: str) -> Keep:
        if text.strip().lower() == "forever":
            return "forever"
        try:
            return parse_duration(text)
        except ValueError as problem:
            raise ValueError(f"{str(problem).removesuffix('.')}, or forever.") from None

    def text(self, value: Keep) -> str:
        return value if isinstance(value, str) else format_exact(value)

    def to_json(self, value: Keep) -> float | str:
        return value if isinstance(value, str) else value.total_seconds()

    def from_json(self, stored: float | str) -> Keep:
        return "forever" if stored == "forever" else timedelta(seconds=float(stored))


class Rates(Kind):
    """Starts in a period."""

    takes = "RATE"
    shortest, longest = timedelta(milliseconds=100), timedelta(days=31)
    _units = dict.fromkeys(("s", "sec", "second"), "1s") | dict.fromkeys(("m", "min", "minute"), "1m")
    _units |= dict.fromkeys(("h", "hour"), "1h") | dict.fromkeys(("d", "day"), "1d")
    _short: Mapping[str, str] = {"1s": "s", "1m": "min", "1h": "h", "1d": "d"}

    def check(self, value: Any) -> None:
        if not isinstance(value, Rate):
            raise ValueError(f"is {value!r}: it must be such as pulse.Rate(100, per=timedelta(minutes=1)).")
        if type(value.starts) is not int or not 1 <= value.starts <= _MILLION:
            raise ValueError(f"has {value.starts!r} starts: they must be from 1 to {_MILLION:,}.")
        if not isinstance(value.per, timedelta) or not self.shortest <= value.per <= self.longest:
            raise ValueError(
                f"has a period of {value.per}: it must be a duration from 100 milliseconds to "
                f"{self.longest.days} days, such as 1 minute."
            )

    def parse(self, text: str) -> Rate:
        starts, slash, period = (part.strip().lower() for part in text.partition("/"))
        try:
            if not (slash and starts.isascii() and starts.isdecimal() and len(starts) < 20):
                raise ValueError
            per = parse_duration(self._units.get(period, period))
        except ValueError:
            raise ValueError(
                f"{text[:_SHOWN]!r} is not a rate: write for example 100/min, 5/s or 1000/30m."
            ) from None
        return _made(Rate, int(starts), per)

    def text(self, value: Rate) -> str:
        span = format_exact(value.per)
        return f"{value.starts}/{self._short.get(span, span)}"

    def to_json(self, value: Rate) -> Mapping[str, float]:
        return {"starts": value.starts, "period": value.per.total_seconds()}

    def from_json(self, stored: Mapping[str, Any]) -> Rate:
        return Rate(stored["starts"], timedelta(seconds=stored["period"]))


class Backoffs(Kind):
    """The delays between attempts."""

    takes = "DELAYS"
    _example = "first=2s,factor=3,longest=6h,jitter=0.2"

    def check(self, value: Any) -> None:
        if not isinstance(value, Backoff):
            raise ValueError(f"is {value!r}: it must be such as pulse.Backoff(first=timedelta(seconds=2)).")
        for name in ("first", "longest"):
            try:
                Span().check(getattr(value, name))
            except ValueError as problem:
                raise ValueError(f"has a {name} delay that {problem}") from None
        if value.longest < value.first:
            raise ValueError("has a longest delay that is shorter than first: make it at least as long.")
        for name, least, most in (("factor", 1, 100), ("jitter", 0, 1)):
            number = getattr(value, name)
            if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
                raise ValueError(f"has a {name} of {number!r}: it must be from {least} to {most}.")

    def parse(self, text: str) -> Backoff:
        parts: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip().lower() for piece in part.partition("="))
            if not equals or name not in ("first", "factor", "longest", "jitter") or name in parts:
                raise ValueError(f"{text[:_SHOWN]!r} is not a backoff: write for example {self._example}.")
            if name in ("first", "longest"):
                parts[name] = parse_duration(value)
                continue
            try:
                parts[name] = float(value)
            except ValueError:
                raise ValueError(
                    f"{name}={value[:_SHOWN]!r} is not a number: write for example {self._example}."
                ) from None
        if "first" not in parts:
            raise ValueError(f"{text[:_SHOWN]!r} has no first delay: write for example {self._example}.")
        # The default of `longest` is an hour. It must not be shorter than the first delay.
        parts.setdefault("longest", max(parts["first"], timedelta(hours=1)))
        return _made(Backoff, **parts)

    def text(self, value: Backoff) -> str:
        return (
            f"first={format_exact(value.first)},factor={value.factor:g},"
            f"longest={format_exact(value.longest)},jitter={value.jitter:g}"
        )

    def words(self, value: Backoff) -> str:
        """2s, then ×3, up to 6h, ±20%."""
        steady = value.factor == 1 or value.first == value.longest
        grows = "" if steady else f", then ×{value.factor:g}, up to {format_exact(value.longest)}"
        spread = f", ±{value.jitter * 100:g}%" if value.jitter else ""
        return f"{'always ' if steady else ''}{format_exact(value.first)}{grows}{spread}"

    def to_json(self, value: Backoff) -> Mapping[str, float]:
        return {
            "first": value.first.total_seconds(),
            "factor": value.factor,
            "longest": value.longest.total_seconds(),
            "jitter": value.jitter,
        }

    def from_json(self, stored: Mapping[str, Any]) -> Backoff:
        return Backoff(
            first=timedelta(seconds=stored["first"]),
            factor=stored["factor"],
            longest=timedelta(seconds=stored["longest"]),
            jitter=stored["jitter"],
        )


class Flag(Kind):
    """Yes or no."""

    takes = "yes|no"

    def check(self, value: Any) -> None:
        if not isinstance(value, bool):
            raise ValueError(f"is {value!r}: it must be True or False.")

    def parse(self, text: str) -> bool:
        if text.strip().lower() not in ("yes", "no"):
            raise ValueError(f"{text[:_SHOWN]!r} is neither yes nor no.")
        return text.strip().lower() == "yes"

    def text(self, value: bool) -> str:
        return "yes" if value else "no"


class Name(Kind):
    """A name that topics share."""

    takes = "NAME"

    def check(self, value: Any) -> None:
        if not isinstance(value, str):
            raise ValueError(f"is {value!r}: it must be a name, such as 'gpu'.")
        if not value:
            raise ValueError("is empty: name what its topics share, such as 'gpu'.")
        if len(value) > _LONGEST_NAME:
            raise ValueError(f"has {len(value)} characters; {_LONGEST_NAME} are allowed at the most.")
        if not _NAME.fullmatch(value):
            raise ValueError(
                f"{value[:_SHOWN]!r} is not allowed: use letters, digits and . _ - : / and start with a "
                "letter or digit."
            )

    def parse(self, text: str) -> str:
        return text.strip()

    def words(self, value: str) -> str:
        return printable.one_line(value)


RATE, BACKOFF = Rates(), Backoffs()
_KEEPING, _FLAG, _RUNNING, _ATTEMPTS = Keeping(), Flag(), Count(_MILLION), Count(1000)


def _check_span(value: Any, alternative: str = "") -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"has to be a timedelta: write timedelta(seconds={value}).")
    if not isinstance(value, timedelta):
        also = f" {alternative}" if alternative else ""
        raise ValueError(f"is {value!r}: it must be a timedelta, such as timedelta(minutes=5){also}.")


def _made(kind: Callable[..., V], *args: Any, **parts: Any) -> V:
    """Return the value of a text. A part out of bounds is a ValueError, as any problem of a text."""
    try:
        return kind(*args, **parts)
    except InvalidArgument as problem:
        raise ValueError(problem.message.partition(" ")[2]) from None


# ---------------------------------------------------------------- owners


class Declares(Enum):
    """Which workers decide an entry that no operator has set."""

    NONE = "none"
    """Code cannot declare it."""
    LAST = "last"
    """The last worker that declared the topic, connected or not: jobs run by its value also when no worker
    is connected."""
    CONNECTED = "connected"
    """The connected workers together; while none is connected, the last ones."""


Join: TypeAlias = Callable[[Sequence[Any]], Any]
"""Returns the value that counts of the values that connected workers declare, the oldest first."""


def within_all(rates: Sequence[Rate]) -> Rate:
    """Return a rate that exceeds none of the rates, in any of their periods. 2/s and 60/min are 2 per 2 s.

    It has the smallest number of starts. A rate with n times as many starts, rounded down, permits
    that number n times in its period. So the new period is at least an nth of that period.
    """
    starts = min(rate.starts for rate in rates)
    return Rate(starts, max(-(-rate.per // (rate.starts // starts)) for rate in rates))


def _newest(values: Sequence[Any]) -> Any:
    return values[-1]


# ---------------------------------------------------------------- entries


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the settings of a topic, without its name."""

    kind: Kind
    title: str
    """In the dashboard."""
    help: str
    """What it sets, in one sentence."""
    example: str
    """As an option of the CLI takes it."""
    group: Literal["limits", "runs", "retention"]
    declares: Declares = Declares.NONE
    join: Join = _newest
    unset: str = "–"
    """What holds if the entry is set nowhere."""
    name: str = ""

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    def text(self, value: Any) -> str:
        """Return the value as a text that `parse` reads back; None: empty."""
        return "" if value is None else self.kind.text(value)

    def words(self, value: Any) -> str:
        """Return the value for people."""
        return self.unset if value is None else self.kind.words(value)

    def parse(self, text: str) -> Any:
        """Return the checked value of a text, or "default". Raises a ValueError that names the entry."""
        if text.strip().lower() in ("", DEFAULT):
            return DEFAULT
        try:
            value = self.kind.parse(text)
            self.kind.check(value)
        except ValueError as problem:
            sentence = str(problem)
            raise ValueError(sentence if sentence[:1] in "'\"" else f"{self.name} {sentence}") from None
        return value


_CONNECTED = Declares.CONNECTED


class TopicEntries(TypedDict, total=False):
    """The entries of the settings of a topic. An entry that is not given does not change."""

    running: Annotated[
        int | Default,
        Entry(
            _RUNNING,
            "Running at once",
            "How many jobs run at once, in the whole cluster.",
            "5",
            "limits",
            _CONNECTED,
            min,
        ),
    ]
    rate: Annotated[
        Rate | Default,
        Entry(RATE, "Rate", "How many jobs start in a period.", "100/min", "limits", _CONNECTED, within_all),
    ]
    pool: Annotated[
        str | Default,
        Entry(
            Name(),
            "Pool",
            "Count running and rate over all topics of this pool.",
            "gpu",
            "limits",
            _CONNECTED,
        ),
    ]
    per_lane: Annotated[
        int | Default,
        Entry(_RUNNING, "Per lane", "How many jobs of one lane run at once.", "2", "limits", _CONNECTED, min),
    ]
    lane_rate: Annotated[
        Rate | Default,
        Entry(
            RATE,
            "Lane rate",
            "How many jobs of one lane start in a period.",
            "10/s",
            "limits",
            _CONNECTED,
            within_all,
        ),
    ]
    turns: Annotated[
        bool | Default,
        Entry(
            _FLAG,
            "Turns",
            "Lanes take turns, so that a lane with many jobs does not delay other lanes.",
            "yes",
            "limits",
            _CONNECTED,
            any,
        ),
    ]
    ordered: Annotated[
        bool | Default,
        Entry(
            _FLAG,
            "In order",
            "One job of a lane at a time, in order; a job that is retried holds its lane.",
            "yes",
            "limits",
            _CONNECTED,
            any,
        ),
    ]
    aging: Annotated[
        timedelta | Default,
        Entry(
            Span(timedelta(days=365)),
            "Aging",
            "How long a job waits for one more step of priority.",
            "5m",
            "limits",
            _CONNECTED,
        ),
    ]
    max_attempts: Annotated[
        int | Default,
        Entry(
            _ATTEMPTS,
            "Attempts",
            "The attempts of jobs that are submitted without their own number, from now on.",
            "8",
            "runs",
            Declares.LAST,
        ),
    ]
    backoff: Annotated[
        Backoff | Default,
        Entry(
            BACKOFF,
            "Backoff",
            "The delays between attempts; all but first may be left out.",
            "first=2s,factor=3,longest=6h,jitter=0.2",
            "runs",
            Declares.LAST,
        ),
    ]
    attempt_timeout: Annotated[
        timedelta | Default,
        Entry(
            Span(), "Time limit", "How long one attempt may take.", "5m", "runs", Declares.LAST, unset="none"
        ),
    ]
    max_crashes: Annotated[
        int | Default,
        Entry(
            _ATTEMPTS,
            "Crashes",
            "How many attempts may end in a lost lease before the job is a dead letter.",
            "3",
            "runs",
            Declares.LAST,
        ),
    ]
    keep_completed: Annotated[
        Keep | Default, Entry(_KEEPING, "Completed", "How long COMPLETED jobs are kept.", "7d", "retention")
    ]
    keep_canceled: Annotated[
        Keep | Default, Entry(_KEEPING, "Canceled", "How long CANCELED jobs are kept.", "7d", "retention")
    ]
    keep_dead_lettered: Annotated[
        Keep | Default,
        Entry(_KEEPING, "Dead-lettered", "How long DEAD_LETTERED jobs are kept.", "30d", "retention"),
    ]


def _declared() -> dict[str, Entry]:
    found = {}
    for name, hint in get_type_hints(TopicEntries, include_extras=True).items():
        (entry,) = (each for each in get_args(hint) if isinstance(each, Entry))
        found[name] = replace(entry, name=name)
    return found


ENTRIES: Mapping[str, Entry] = _declared()
Entries: TypeAlias = Mapping[str, Any]
"""Values by the name of their entry; an entry without a value is not in it."""


def group_of(*groups: str) -> tuple[Entry, ...]:
    """Return the entries of these groups, in order."""
    return tuple(entry for entry in ENTRIES.values() if entry.group in groups)


def check(entries: Mapping[str, Any], *, code: bool = False) -> None:
    """Raise a ValueError for a wrong value or an unknown name. With `code` a worker declares the entries."""
    for name, value in entries.items():
        entry = known(name)
        if code and entry.declares is Declares.NONE:
            raise ValueError(f"{name} cannot be declared in code: an operator sets it.")
        try:
            entry.kind.check(value)
        except ValueError as problem:
            raise ValueError(f"{name} {problem}") from None


def check_together(entries: Entries) -> None:
    """Raise a ValueError for entries in force that contradict each other."""
    if "pool" in entries and not {"running", "rate"} & entries.keys():
        raise ValueError("pool has neither running nor a rate to share: set one of them.")
    if entries.get("ordered") and entries.get("per_lane", 1) != 1:
        raise ValueError(
            f"ordered needs one job of a lane at a time, and per_lane is {entries['per_lane']}: make it 1."
        )


def known(name: str) -> Entry:
    """Return the entry. Raises a ValueError that names all entries."""
    if (entry := ENTRIES.get(name)) is None:
        raise ValueError(
            f"{name[:_SHOWN]!r} is no setting of a topic: the settings are {', '.join(ENTRIES)}."
        )
    return entry


def to_json(entries: Entries) -> dict[str, Any]:
    """Return the entries as they are stored."""
    return {name: ENTRIES[name].kind.to_json(value) for name, value in entries.items()}


def from_json(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored entries. Entries and values of a later version are left out.

    The settings of all topics are read together: one wrong value must not stop the others.
    """
    entries: dict[str, Any] = {}
    for name in stored.keys() & ENTRIES.keys():
        kind = ENTRIES[name].kind
        with suppress(ValueError, TypeError, LookupError, ArithmeticError, InvalidArgument):
            kind.check(value := kind.from_json(stored[name]))
            entries[name] = value
    return {name: entries[name] for name in ENTRIES if name in entries}
