"""The peers, and which of them can run here."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from benchmarks.figures import Figure
from benchmarks.peers import (
    awa,
    celery,
    dramatiq,
    graphile_worker,
    method,
    oban,
    pg_boss,
    pgqueuer,
    procrastinate,
    taskiq,
)
from benchmarks.peers.crew import Runner
from benchmarks.peers.environments import Installed, LeftOut, ensure
from benchmarks.peers.peer import Peer, PeerFailed
from benchmarks.peers.redis_store import require_redis
from benchmarks.stand import Stand

PEERS: dict[str, Peer] = {
    module.PEER.name: module.PEER
    for module in (awa, graphile_worker, pg_boss, oban, procrastinate, pgqueuer, celery, dramatiq, taskiq)
}


class UnknownPeer(Exception):
    """There is no such peer."""


def chosen(names: str | None) -> Sequence[str]:
    """Return the requested peers: none, all, or the names of a comma-separated list."""
    if names is None:
        return ()
    if not names:
        return tuple(PEERS)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := sorted(set(wanted) - PEERS.keys()):
        raise UnknownPeer(f"there is no peer {', '.join(unknown)}; known are {', '.join(PEERS)}")
    return wanted


async def prepare(names: Sequence[str]) -> list[str]:
    """Install the peers' packages. Returns the peers that can run; prints why others cannot."""
    ready = []
    for name in names:
        try:
            installed = await asyncio.to_thread(_ensure, PEERS[name])
        except LeftOut as reason:
            _say(f"{name} is left out: {reason}.")
        else:
            _say(", ".join(f"{package} {version}" for package, version in installed.versions.items()))
            ready.append(name)
    return ready


async def measure(stand: Stand, name: str, scenario: str) -> list[Figure]:
    """Measure one peer that is prepared, with the method of that scenario.

    Returns nothing if the peer does not support the scenario, or failed. The reason is printed, and
    other peers keep their figures.
    """
    peer = PEERS[name]
    try:
        installed = await asyncio.to_thread(_ensure, peer)
        return await method.SCENARIOS[scenario](stand, Runner(peer, installed))
    except (LeftOut, PeerFailed) as reason:
        _say(f"{name} is left out of {scenario}: {reason}.")
    except Exception as error:
        _say(f"{scenario}: {name} is left out: {type(error).__name__}: {error}")
    return []


def _ensure(peer: Peer) -> Installed:
    redis = {"Redis": require_redis()} if peer.store == "redis" else {}
    installed = ensure(peer.name, peer.environment)
    return Installed(installed.interpreter, installed.folder, {**installed.versions, **redis})


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
