"""An operator who changes limits all the time, holds topics, weighs lanes, and moves topics between pools."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

from faults.limited_topics import (
    ALL_LIMITED,
    FAIR,
    LIMITED,
    METERED,
    ORDERLY,
    OTHER_POOL,
    PLAIN_AT_FIRST,
    POOL,
    RENDER,
    SIPS,
    TENANTS,
    TRAIN,
    rate,
)
from faults.operating import Operator
from pulse_server.topics.rules import LIMITS

# From one change to the next, on average.
_PAUSE_SECONDS = 0.9
_LANES = 30
_HOLD_SECONDS = (0.1, 1.5)
_AGAIN_SECONDS = 0.2

_LIMITS = (1, 2, 3, 8, 30)
_FEW = (1, 1, 2, 3)
_RATES = (rate(5, 0.5), rate(10, 1), rate(40, 1), rate(60, 3), rate(30, 0.7))
_LANE_RATES = (rate(1, 0.3), rate(3, 1), rate(10, 2), rate(20, 5))
# What may become of each entry. A topic without entries of an operator has what code declares.
_CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    LIMITED: {"running": (*_LIMITS, "default"), "rate": (rate(30, 1), "default")},
    METERED: {"rate": (*_RATES, "default"), "running": (*_LIMITS, "default")},
    TENANTS: {
        "per_lane": (*_FEW, "default"),
        "running": (*_LIMITS, "default"),
        "aging": (timedelta(seconds=2), "default"),
    },
    SIPS: {
        "lane_rate": (*_LANE_RATES, "default"),
        "per_lane": (*_FEW, "default"),
        "rate": (*_RATES, "default"),
    },
    FAIR: {
        "running": (*_LIMITS, "default"),
        "ordered": (True, "default"),
        "aging": (timedelta(seconds=1), "default"),
    },
    ORDERLY: {"running": (*_LIMITS, "default"), "lane_rate": (*_LANE_RATES, "default")},
    TRAIN: {
        "running": (*_LIMITS, "default"),
        "pool": (POOL, OTHER_POOL, "default"),
        "turns": (True, "default"),
    },
    RENDER: {"running": (*_LIMITS, "default"), "per_lane": (*_FEW, "default"), "rate": (*_RATES, "default")},
    PLAIN_AT_FIRST: {"running": (*_LIMITS, "default", "default"), "turns": (True, "default")},
}


async def regulate(operator: Operator, random: Random) -> None:
    """Change limits until canceled."""
    while True:
        topic = random.choice(tuple(_CHOICES))
        match random.choices(("set", "return", "hold", "lane"), (12, 2, 3, 2))[0]:
            case "set":
                name, values = random.choice(tuple(_CHOICES[topic].items()))
                await operator.limit(topic, **{name: random.choice(values)})
            case "return":
                await operator.limit(topic, **dict.fromkeys(LIMITS, "default"))
            case "hold":
                seconds = random.choice((0.0, random.uniform(*_HOLD_SECONDS), random.uniform(*_HOLD_SECONDS)))
                await operator.hold(topic, timedelta(seconds=seconds))
            case "lane":
                own = random.choice((None, 1, 3))
                await operator.set_lane(topic, f"lane-{random.randrange(_LANES)}", random.randint(1, 4), own)
        await asyncio.sleep(random.expovariate(1 / _PAUSE_SECONDS))


async def return_all_limits(operator: Operator) -> None:
    """Return every entry to what code declares, and end all holds."""
    for topic in (*ALL_LIMITED, PLAIN_AT_FIRST):
        while not await operator.limit(topic, **dict.fromkeys(LIMITS, "default")):  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_SECONDS)
        await operator.hold(topic, timedelta(0))
