"""The faults of the nemesis, one module for each family. A kind's name is the key to its injection."""

from tests.faults.faults import (
    absences,
    contention,
    database,
    declarations,
    floods,
    haste,
    network,
    partitions,
    processes,
    rows,
    saturation,
    slowness,
    switches,
)

KINDS = [
    *processes.KINDS,
    *absences.KINDS,
    *network.KINDS,
    *database.KINDS,
    *contention.KINDS,
    *rows.KINDS,
    *partitions.KINDS,
    *switches.KINDS,
    *floods.KINDS,
    *haste.KINDS,
    *declarations.KINDS,
    *saturation.KINDS,
    *slowness.KINDS,
]
# These also last for as long as a spell, without any other fault beside them.
SPELLS = [*saturation.SPELLS, *slowness.SPELLS]
