"""The faults of the nemesis, one module for each family. A kind's name is the key to its injection."""

from faults.kinds import (
    absences,
    commits,
    contention,
    crowds,
    database,
    declarations,
    floods,
    giants,
    haste,
    network,
    partitions,
    prepared,
    processes,
    recovering,
    rows,
    saturation,
    slowness,
    statistics,
    strangers,
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
    *commits.KINDS,
    *prepared.KINDS,
    *statistics.KINDS,
    *strangers.KINDS,
    *crowds.KINDS,
    *giants.KINDS,
    *recovering.KINDS,
]
# These also last for as long as a spell, without any other fault beside them.
SPELLS = [*saturation.SPELLS, *slowness.SPELLS, *commits.SPELLS]
