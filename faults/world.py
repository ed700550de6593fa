"""Everything that takes part in a run: Postgres, servers, workers, applications, and the links between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from faults.audit import record_clock
from faults.cast import APPLICATIONS, REPLICAS, WORKERS, Application, Pace, Replica, WorkerPlace
from faults.cluster import AWAY, Cluster
from faults.history import History
from faults.links import Link
from faults.operating import Operator, doors_open
from faults.places import Ground, Place

# For the calls of the nemesis to a server: after that it calls another one.
_OPERATOR_TIMEOUT = timedelta(seconds=2)
_CLOCK_SECONDS = 10.0


class World:
    """At first only the cluster and the links run."""

    def __init__(self, ground: Ground, cluster: Cluster, links: dict[str, Link], pace: Pace) -> None:
        self.ground = ground
        self.history = ground.history
        self.cluster = cluster
        self.links = links
        self.replicas = {name: Replica(name, ground, links[f"{name}~postgres"]) for name in REPLICAS}
        addresses = {name: replica.address for name, replica in self.replicas.items()}
        self.workers = {
            name: WorkerPlace(name, ground, links[f"{name}~pulsed"], links[f"{name}~bank"], addresses)
            for name in WORKERS
        }
        self.applications: dict[str, Application] = {}
        for name in APPLICATIONS:
            doors = [links[f"{name}~{replica}"] for replica in REPLICAS]
            for door, replica in zip(doors, self.replicas.values(), strict=True):
                door.lead_to(replica.address)
            self.applications[name] = Application(name, ground, doors, links[f"{name}~bank"], pace)
        self.places: dict[str, Place] = {**self.replicas, **self.workers, **self.applications}
        self.operator: Operator  # set once there are servers to call

    @contextmanager
    def recorded(self, kind: str, target: str, **facts: Any) -> Iterator[None]:
        """Record a fault that lasts as long as the block."""
        self.history.write("fault", kind=kind, target=target, **facts)
        try:
            yield
        finally:
            self.history.write("healed", kind=kind, target=target)

    async def read_clock_on_and_on(self) -> None:
        while True:
            # The database may be away: then the next reading is used.
            with suppress(*AWAY):
                async with asyncio.timeout(1), self.cluster.session() as session:
                    await record_clock(session, self.history)
            await asyncio.sleep(_CLOCK_SECONDS)


@asynccontextmanager
async def world_open(
    directory: Path, seed: int, pace: Pace, *, is_control: bool = False
) -> AsyncIterator[World]:
    """A world in this directory for the length of a block; at its end all processes are killed."""
    (directory / "history").mkdir()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history", "nemesis"))
        cluster = Cluster(directory / "cluster")
        stack.push_async_callback(cluster.close)
        await cluster.open()
        links = {
            **{f"{name}~postgres": Link(str(cluster.socket), seed) for name in REPLICAS},
            **{f"{name}~pulsed": Link("", seed) for name in WORKERS},
            **{f"{name}~bank": Link(str(cluster.socket), seed) for name in (*WORKERS, *APPLICATIONS)},
            **{f"{name}~{replica}": Link("", seed) for name in APPLICATIONS for replica in REPLICAS},
        }
        for link in links.values():
            await stack.enter_async_context(link.opened())
        world = World(Ground(directory, history, seed, is_control), cluster, links, pace)
        doors = await stack.enter_async_context(
            doors_open([replica.address for replica in world.replicas.values()], _OPERATOR_TIMEOUT)
        )
        world.operator = Operator(history, doors, Random(f"{seed} operator"))
        stack.callback(_kill_all, world)
        yield world


def _kill_all(world: World) -> None:
    for place in world.places.values():
        place.kill()
