"""Addresses for machines that are all this one: every address in 127.0.0.0/8 is."""

from __future__ import annotations

import socket
from random import SystemRandom

from faults.ha.templates import PORTS

MACHINES = 3


class NoFreeAddress(Exception):
    """Its text is shown to the user."""


def free_addresses() -> dict[str, str]:
    """The names of the machines and their addresses, on which the ports of the recipe are free."""
    chance = SystemRandom()
    taken = ""
    for _ in range(20):
        network = f"127.{chance.randrange(16, 250)}.{chance.randrange(250)}"
        addresses = {f"db{number}": f"{network}.{number}" for number in range(1, MACHINES + 1)}
        try:
            for address in addresses.values():
                for port in PORTS.values():
                    taken = f"{address}:{port}"
                    with socket.socket() as probe:
                        probe.bind((address, port))
        except OSError:
            continue
        return addresses
    raise NoFreeAddress(
        f"{taken} is in use, perhaps at all addresses of this machine. The cluster needs the ports "
        f"{', '.join(map(str, PORTS.values()))} at three addresses of 127.0.0.0/8."
    )
