"""How large the bad days are: seconds in the ordinary suite, and as named with PULSE_BAD_DAYS=full."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tests.system.stage import QUICK

IS_FULL = os.environ.get("PULSE_BAD_DAYS") == "full"

# No live worker may lose a job: on a busy machine a heartbeat is slow, and some fail.
PATIENT = QUICK | {"PULSE_LEASE_TTL": "8s", "PULSE_HEARTBEAT_INTERVAL": "1500ms"}
SEVERAL_LEASES_SECONDS = 17
# Shorter: a server whose database is frozen answers each heartbeat late, and must do so within a lease.
OUTAGE_LEASES = QUICK | {"PULSE_LEASE_TTL": "4s", "PULSE_HEARTBEAT_INTERVAL": "1500ms"}
# The default of a server.
DEFAULT_LEASES = {
    "PULSE_LEASE_TTL": "30s",
    "PULSE_HEARTBEAT_INTERVAL": "10s",
    "PULSE_WATCHDOG_INTERVAL": "10s",
    "PULSE_DISPATCH_INTERVAL": "500ms",
}


@dataclass(frozen=True)
class Outage:
    """How many jobs run while the database is away, for how long, and how soon all must be well after it."""

    settings: Mapping[str, str]
    workers: int
    jobs: int
    seconds: float
    patience_seconds: float


OUTAGE = (
    Outage(DEFAULT_LEASES, workers=5, jobs=5_000, seconds=120, patience_seconds=180)
    if IS_FULL
    else Outage(OUTAGE_LEASES, workers=2, jobs=300, seconds=8.5, patience_seconds=50)
)


@dataclass(frozen=True)
class Block:
    """How long an event loop is blocked, and the leases meanwhile."""

    settings: Mapping[str, str]
    lease_seconds: float
    seconds: float
    patience_seconds: float


BLOCK = (
    Block(DEFAULT_LEASES, lease_seconds=30, seconds=60, patience_seconds=120)
    if IS_FULL
    else Block(PATIENT, lease_seconds=8, seconds=SEVERAL_LEASES_SECONDS, patience_seconds=50)
)

# How each server ends. Before them one has died with jobs that it handed over.
RESTARTS = [("kill",) * 9, ("stop",) * 9] if IS_FULL else [("kill", "stop") * 4 + ("kill",)]
