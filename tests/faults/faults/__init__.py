"""What the nemesis can do, one module for each family. A kind's name says how it is inflicted."""

from tests.faults.faults import contention, database, network, processes, switches

KINDS = [*processes.KINDS, *network.KINDS, *database.KINDS, *contention.KINDS, *switches.KINDS]
