"""Runs the peers: other queues, measured side by side in the same run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.figures import Figure
from benchmarks.stand import Stand

# Scenarios for peers. In other scenarios pulse is compared with itself or with the database.
SCENARIOS = ("submit", "bulk", "drain", "e2e", "idle", "limits")


class UnknownPeer(Exception):
    """There is no such peer, or none at all in this copy."""


def chosen(names: str | None) -> Sequence[str]:
    """Return the requested peers: none, all, or the names of a comma-separated list."""
    if names is None:
        return ()
    from benchmarks import peers

    if not names:
        return peers.NAMES
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := sorted(set(wanted) - set(peers.NAMES)):
        raise UnknownPeer(f"there is no peer {', '.join(unknown)}; known are {', '.join(peers.NAMES)}")
    return wanted


async def prepare(names: Sequence[str]) -> Sequence[str]:
    """Install the peers' packages. Returns the peers that can run."""
    from benchmarks import peers

    return await peers.prepare(names)


async def measure(stand: Stand, name: str, scenario: str) -> list[Figure]:
    """Return the figures of a peer. A failing peer is reported and left out; other peers run."""
    from benchmarks import peers

    try:
        return await peers.measure(stand, name, scenario)
    except Exception as error:
        print(f"{scenario}: {name} is left out: {type(error).__name__}: {error}", file=sys.stderr)
        return []
