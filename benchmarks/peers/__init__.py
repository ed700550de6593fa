"""Other job queues, measured beside pulse in the same run: `python3 dev.py bench --peers`.

The programs in programs/ import this package inside the peers' own environments, which lack our
packages. Therefore its functions import their modules only when they are called.
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
    """Install the peers' packages. Returns the peers that can run; prints why others cannot."""
    from benchmarks.peers import catalogue

    return await catalogue.prepare(names)


async def measure(stand: Stand, name: str, scenario: str) -> list[Figure]:
    """Measure one peer that is prepared, with the method of that scenario.

    Returns nothing if the peer does not support the scenario, or failed. The reason is printed, and
    other peers keep their figures.
    """
    from benchmarks.peers import catalogue

    return await catalogue.measure(stand, name, scenario)
