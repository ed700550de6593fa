"""What an application enqueues, drawn at random: all expectations, sizes, priorities and ways to enqueue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random

import pulse
from faults.errands import AT_THE_PACE, Errand
from faults.limited_topics import ALL_LIMITED, LANED, ORDERLY, UNIQUE
from faults.topics import MANY

# The outcomes of handlers, out of a hundred.
_EXPECTATIONS = {
    "complete": 54,
    "steps": 6,
    "fail_once": 6,
    "retry_once": 6,
    "snooze_once": 4,
    "snooze_twice": 2,
    "flaky": 6,
    "block": 1,
    "discard": 5,
    "fail": 4,
    "any": 6,
}
# Enough that no job runs out of them by chance: only its handler can have dead-lettered it.
_PLENTY = 20
# Some have one or two attempts. Their outcome depends on the faults of their workers.
_FEW_ATTEMPTS = {1: 18, 2: 10, _PLENTY: 72}
_SECONDS = (0.0, 0.0, 0.0, 0.01, 0.05, 0.2, AT_THE_PACE)
# Shorter and longer than a lease, and than the convergence of a pause.
_BLOCKED_SECONDS = {0.3: 12, 1.2: 2, 2.5: 1}
# Some outlast their lease several times, and are kept by heartbeats.
_LONG_SHARE, _LONG_SECONDS = 0.02, (1.0, 4.0)
_BALLAST = {0: 600, 100: 250, 1_000: 100, 20_000: 40, 200_000: 8, 1_000_000: 1}
_MANY_SHARE = 0.15
_DELAYED_SHARE, _DELAY_SECONDS = 0.08, (0.05, 3.0)
# Shorter than an outage, and longer than most waits.
_START_SHARE, _START_SECONDS = 0.06, (0.2, 4.0)
_PRIORITY_SHARE, _PRIORITIES = 0.25, (*range(-5, 6), -(2**31), 2**31 - 1)
_KEY_SHARE = 0.12
_BULK_SHARE, _BULK_SIZES = 0.12, range(2, 16)
# Most callers wait for the answer. Some time out during a fault, and never get it.
_IMPATIENT_SHARE, _IMPATIENT_SECONDS, _PATIENT_SECONDS = 0.25, (0.2, 1.5), 15.0


# Jobs of topics with limits take a while, so that there is something to limit.
_LIMITED_SHARE, _LANE_SHARE, _LANES = 0.3, 0.95, 30
_LIMITED_EXPECTATIONS = {"complete": 78, "fail_once": 6, "retry_once": 6, "snooze_once": 5, "discard": 5}
_LIMITED_SECONDS = (0.0, 0.01, 0.05, 0.2, 0.4)
_LIMITED_BULK_SHARE, _LIMITED_BULK_SIZES = 0.3, range(5, 40)
_LIMITED_BALLAST = (0, 0, 0, 0, 100, 1_000, 100_000)
_UNIQUE_SHARE, _KEYS, _UNIQUE_DELAY = 0.08, 6, (0.05, 1.0)
_DEBOUNCE, _THROTTLE = timedelta(seconds=0.2), timedelta(seconds=0.5)


@dataclass(frozen=True)
class Order:
    """One call: one job, or several that differ only in their errand."""

    topic: str
    errands: list[Errand]
    is_bulk: bool
    has_key: bool
    priority: int
    max_attempts: int
    delay: timedelta | None
    timeout: timedelta
    start_within: timedelta | None = None
    lane: str | None = None
    unique: pulse.Unique | None = None


def draw_order(random: Random, next_key: Callable[[], str]) -> Order:
    """Draw one. Each errand gets a key of its own."""
    kind = random.random()
    if kind < _LIMITED_SHARE:
        return _limited_order(random, next_key)
    if kind < _LIMITED_SHARE + _UNIQUE_SHARE:
        return _unique_order(random, next_key)
    (expect,) = random.choices(list(_EXPECTATIONS), weights=list(_EXPECTATIONS.values()))
    is_bulk = random.random() < _BULK_SHARE
    size = random.choice(_BULK_SIZES) if is_bulk else 1
    return Order(
        # A handler that blocks its thread blocks no other: these are to block the event loop.
        topic=random.choice(("mail", "report")) if expect == "block" else _topic(random),
        errands=[_errand(random, next_key(), expect) for _ in range(size)],
        is_bulk=is_bulk,
        has_key=not is_bulk and random.random() < _KEY_SHARE,
        priority=random.choice(_PRIORITIES) if random.random() < _PRIORITY_SHARE else 0,
        max_attempts=_max_attempts(random, expect),
        delay=_some_seconds(random, _DELAY_SECONDS) if random.random() < _DELAYED_SHARE else None,
        timeout=_timeout(random),
        start_within=_some_seconds(random, _START_SECONDS) if random.random() < _START_SHARE else None,
    )


def _limited_order(random: Random, next_key: Callable[[], str]) -> Order:
    """Of a topic with limits. Most lanes are small, a few are large."""
    topic = random.choice(ALL_LIMITED)
    (expect,) = random.choices(list(_LIMITED_EXPECTATIONS), weights=list(_LIMITED_EXPECTATIONS.values()))
    is_bulk = random.random() < _LIMITED_BULK_SHARE
    size = random.choice(_LIMITED_BULK_SIZES) if is_bulk else 1
    if topic == ORDERLY and expect != "complete":
        size = 1  # each would hold the lane for the backoff of a retry
    seconds = random.choice(_LIMITED_SECONDS)
    number = min(int(random.expovariate(0.15)), _LANES - 1)
    return Order(
        topic=topic,
        errands=[
            Errand(next_key(), expect, seconds, "x" * random.choice(_LIMITED_BALLAST)) for _ in range(size)
        ],
        is_bulk=is_bulk,
        # The audit of lanes does not know repeats that are stored and taken back.
        has_key=topic != ORDERLY and not is_bulk and random.random() < _KEY_SHARE,
        priority=random.choice(_PRIORITIES) if random.random() < _PRIORITY_SHARE else 0,
        max_attempts=_PLENTY,
        delay=_some_seconds(random, _DELAY_SECONDS) if random.random() < _DELAYED_SHARE else None,
        timeout=_timeout(random),
        start_within=None
        if topic == ORDERLY or random.random() > _START_SHARE
        else _some_seconds(random, _START_SECONDS),
        lane=f"lane-{number}" if topic in LANED and random.random() < _LANE_SHARE else None,
    )


def _unique_order(random: Random, next_key: Callable[[], str]) -> Order:
    delay = _some_seconds(random, _UNIQUE_DELAY) if random.random() < _DELAYED_SHARE else None
    errand = Errand(next_key(), "any", random.choice(_LIMITED_SECONDS))
    return Order(
        topic=UNIQUE,
        errands=[errand],
        is_bulk=False,
        has_key=False,
        priority=0,
        max_attempts=_PLENTY,
        delay=delay,
        timeout=_timeout(random),
        unique=_unique(random, may_debounce=delay is None),
    )


def _unique(random: Random, *, may_debounce: bool) -> pulse.Unique:
    """Each way of a conflict has keys of its own."""
    number = random.randrange(_KEYS)
    match random.choice(("skip", "live", "replace", "debounce" if may_debounce else "replace", "throttle")):
        case "live":
            return pulse.Unique(f"live-{number}", while_="live")
        case "debounce":
            return pulse.Unique(f"debounce-{number}", on_conflict="debounce", period=_DEBOUNCE)
        case "throttle":
            return pulse.Unique(f"throttle-{number}", on_conflict="throttle", period=_THROTTLE)
        case "replace":
            return pulse.Unique(f"replace-{number}", on_conflict="replace")
    return pulse.Unique(f"skip-{number}")


def _errand(random: Random, key: str, expect: str) -> Errand:
    (ballast,) = random.choices(list(_BALLAST), weights=list(_BALLAST.values()))
    return Errand(key, expect, _work_seconds(random, expect), "x" * ballast)


def _work_seconds(random: Random, expect: str) -> float:
    if expect == "block":
        return random.choices(list(_BLOCKED_SECONDS), weights=list(_BLOCKED_SECONDS.values()))[0]
    if expect == "complete" and random.random() < _LONG_SHARE:
        return random.uniform(*_LONG_SECONDS)
    return random.choice(_SECONDS)


def _max_attempts(random: Random, expect: str) -> int:
    if expect == "any":
        return random.choice((1, 2, 3))
    if expect == "fail":
        return 2
    return random.choices(list(_FEW_ATTEMPTS), weights=list(_FEW_ATTEMPTS.values()))[0]


def _topic(random: Random) -> str:
    if random.random() < _MANY_SHARE:
        return random.choice(MANY)
    return random.choices(("mail", "report", "thumbnail"), weights=(5, 3, 2))[0]


def _timeout(random: Random) -> timedelta:
    if random.random() < _IMPATIENT_SHARE:
        return _some_seconds(random, _IMPATIENT_SECONDS)
    return timedelta(seconds=_PATIENT_SECONDS)


def _some_seconds(random: Random, between: tuple[float, float]) -> timedelta:
    return timedelta(seconds=random.uniform(*between))
