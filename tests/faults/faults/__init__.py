"""What the nemesis can do, one module for each family. A kind's name says how it is inflicted."""

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
