"""The faults of the nemesis, one module for each family. A kind's name is the key to its injection."""

from tests.faults.faults import (
    absences,
    contention,
    database,
    floods,
    haste,
    network,
    processes,
    rows,
    switches,
)

KINDS = [
    *processes.KINDS,
    *absences.KINDS,
    *network.KINDS,
    *database.KINDS,
    *contention.KINDS,
    *rows.KINDS,
    *switches.KINDS,
    *floods.KINDS,
    *haste.KINDS,
]
