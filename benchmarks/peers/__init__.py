"""Other job queues, measured beside pulse in the same run: `python3 dev.py bench --peers`.

The programs in programs/ import this package inside the peers' own environments, where nothing of ours is
installed. That is why it imports what it needs only when it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.figures import Figure
    from benchmarks.stand import Stand

NAMES = (
    "awa",
    "graphile-worker",
    "pg-boss",
    "oban",
    "procrastinate",
    "pgqueuer",
    "celery",
    "dramatiq",
    "taskiq",
)


async def prepare(names: Sequence[str]) -> list[str]:
    """Install what these peers need, once for all. Returns those that can run; prints why others cannot."""
    from benchmarks.peers import catalogue

    return await catalogue.prepare(names)


async def measure(stand: Stand, name: str, scenario: str) -> list[Figure]:
    """Measure one peer that is prepared, with the method of that scenario.

    Returns nothing where the peer has no such way of working, or when it failed: the reason is printed,
    and takes no figure away from the others.
    """
    from benchmarks.peers import catalogue

    return await catalogue.measure(stand, name, scenario)
