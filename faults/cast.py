"""The processes of a run besides Postgres: servers, workers, and applications that enqueue."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from faults.links import Link
from faults.places import Ground, Life, Place
from faults.topics import topics_of
from tests.system.stage import Process, Pulsed, Worker, free_port

# At least two: those that only migrate use the links of the first ones.
SERVERS = "CHAOS_SERVERS"
REPLICAS = tuple(f"pulsed-{number}" for number in range(1, max(2, int(os.environ.get(SERVERS, "3"))) + 1))
WORKERS = tuple(f"worker-{number}" for number in range(1, 9))
APPLICATIONS = ("application-1", "application-2")

# Leases that lapse within a freeze, and recovery within seconds. A worker may miss three beats.
LEASE_SECONDS = 1.5
_SHORT_LEASES = {"PULSE_LEASE_TTL": f"{LEASE_SECONDS}s", "PULSE_HEARTBEAT_INTERVAL": "375ms"}
_LONG_LEASE_SECONDS = 8
# With every third seed heartbeats are so rare that workers must learn of a lost job in other ways.
_LONG_LEASES = {"PULSE_LEASE_TTL": f"{_LONG_LEASE_SECONDS}s", "PULSE_HEARTBEAT_INTERVAL": "3s"}
_SETTINGS = {
    "PULSE_WATCHDOG_INTERVAL": "250ms",
    "PULSE_DISPATCH_INTERVAL": "250ms",
    "PULSE_DRAIN_TIMEOUT": "3s",
}
_DRAIN_SECONDS = 0.5


def _are_long(seed: int) -> bool:
    return seed % 3 == 2


def leases_of(seed: int) -> timedelta:
    """How long the leases of a run are."""
    return timedelta(seconds=_LONG_LEASE_SECONDS if _are_long(seed) else LEASE_SECONDS)


@dataclass(frozen=True)
class Pace:
    """How much all applications enqueue, at most."""

    jobs_per_second: float
    wishes_per_second: float


class Replica(Place):
    """A pulsed, always at the same address. It reaches the database through a link."""

    def __init__(
        self, name: str, ground: Ground, database: Link, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, ground)
        self.address = f"127.0.0.1:{free_port()}"
        self.database = database
        self._settings = settings or {}

    def _start(self, name: str, log: Path, life: Life) -> Process:
        leases = _LONG_LEASES if _are_long(self._ground.seed) else _SHORT_LEASES
        own = {"DB_HOST": self.database.dsn, "PULSE_GRPC_ADDR": self.address, **self._settings}
        environment = _SETTINGS | leases | own
        program = ("faults.stalls", name, str(self._ground.events), "pulse_server.main", "--migrate")
        arguments = _arguments(life, *program)
        return Pulsed(name, log, arguments, environment | self._environment(life))

    def _says_so(self, process: Process) -> bool:
        return '"event": "serving"' in process.log


class WorkerPlace(Place):
    """A worker, with a link to one of the servers, and one to the tables of its handlers."""

    def __init__(
        self, name: str, ground: Ground, servers: Link, bank: Link, addresses: Mapping[str, str]
    ) -> None:
        super().__init__(name, ground)
        self.servers = servers
        self._bank = bank
        self.replica = ""
        self._addresses = addresses
        self.worker_id = ""
        self._topics = topics_of(WORKERS.index(name), len(WORKERS))

    def _start(self, name: str, log: Path, life: Life) -> Process:
        self.replica = life.replica or self.replica
        self.servers.lead_to(self._addresses[self.replica])
        self._ground.attachments[name] = self.replica
        if not (life.keeps_name and self.worker_id):
            self.worker_id = name
        config = {
            "name": name,
            "worker_id": self.worker_id,
            "address": self.servers.address,
            "history": str(self._ground.events),
            "topics": self._topics,
            "concurrency": life.concurrency,
            "drain_seconds": _DRAIN_SECONDS,
            "bank": self._bank.bank_dsn,
            "completes": not self._ground.is_control,
        }
        arguments = _arguments(life, "faults.worker_program", json.dumps(config))
        return Worker(name, log, arguments, self._environment(life))

    def lead_to(self, replica: str) -> None:
        """Connect it to another server, from its next connection on."""
        self.replica = replica
        self.servers.lead_to(self._addresses[replica])
        self._ground.attachments[self.present_name] = replica
        self._ground.history.write("led", target=self.present_name, replica=replica)

    def _facts(self, life: Life) -> dict[str, Any]:
        return {
            "worker_id": self.worker_id,
            "replica": self.replica,
            "concurrency": life.concurrency,
            "topics": self._topics,
        }

    def _says_so(self, process: Process) -> bool:
        # Before it has looked for its server it does not handle signals yet.
        return "pulsed at" in process.log


class Application(Place):
    """An application, with a link to each of the servers, and one to its tables."""

    def __init__(self, name: str, ground: Ground, servers: Sequence[Link], bank: Link, pace: Pace) -> None:
        super().__init__(name, ground)
        self._servers = servers
        self._bank = bank
        self._pace = pace

    def _start(self, name: str, log: Path, life: Life) -> Process:
        config = {
            "name": name,
            "addresses": [link.address for link in self._servers],
            "history": str(self._ground.events),
            "seed": f"{self._ground.seed} {name}",
            "bank": self._bank.bank_dsn,
            "jobs_per_second": self._pace.jobs_per_second / len(APPLICATIONS),
            "wishes_per_second": self._pace.wishes_per_second / len(APPLICATIONS),
        }
        arguments = _arguments(life, "faults.load", json.dumps(config))
        return Process(name, log, arguments, self._environment(life))

    def _says_so(self, process: Process) -> bool:
        return "The application runs" in process.log


def _arguments(life: Life, module: str, *arguments: str) -> list[str]:
    shifted = ["-m", "faults.skewed_clock", str(life.seconds_ahead)] if life.seconds_ahead else ["-m"]
    return [*shifted, module, *arguments]
