"""The topics with limits, and what the code of each worker declares for them."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

import pulse

LIMITED, METERED, TENANTS, SIPS, FAIR, ORDERLY, TRAIN, RENDER = ALL_LIMITED = (
    *("limited", "metered", "tenants", "sips", "fair", "orderly", "train", "render"),
)
LANED = frozenset({TENANTS, SIPS, FAIR, ORDERLY, RENDER})
# Has limits only while an operator sets some.
PLAIN_AT_FIRST = "report"
UNIQUE = "unique"
POOL, OTHER_POOL = "gpu", "cpu"


def rate(starts: int, seconds: float) -> pulse.Rate:
    return pulse.Rate(starts, per=timedelta(seconds=seconds))


# Of each the first, or another one: workers of two versions run side by side.
_DECLARED: dict[str, tuple[dict[str, Any], ...]] = {
    LIMITED: ({"running": 3}, {"running": 5}),
    METERED: ({"rate": rate(20, 1)}, {"rate": rate(30, 1), "running": 8}),
    TENANTS: ({"per_lane": 1}, {"per_lane": 2}),
    SIPS: ({"lane_rate": rate(4, 1)}, {"lane_rate": rate(5, 1), "running": 9}),
    FAIR: ({"turns": True}, {"turns": True, "running": 6}),
    ORDERLY: ({"ordered": True},),
    TRAIN: ({"pool": POOL, "running": 4}, {"pool": POOL, "running": 6}),
    RENDER: ({"pool": POOL, "running": 5, "per_lane": 2},),
}


def declared(topic: str, worker: str) -> dict[str, Any]:
    """The options with which this worker registers its handler."""
    versions = _DECLARED.get(topic, ({},))
    return versions[zlib.crc32(f"{worker} {topic}".encode()) % len(versions)]
