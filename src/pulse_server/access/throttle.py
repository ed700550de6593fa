"""Limits wrong passwords: one bucket per address, and one per address and user.

Checked before any password is hashed. Memory is bounded for any number of names and addresses.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import timedelta
from functools import lru_cache

# After its burst an address gets one check per interval: half a check a second, 6 to 18% of a core.
LOGIN_INTERVAL = timedelta(seconds=2)
# Wrong passwords in a row for one user from one address: a typing error does not lock a user out.
LOGIN_BURST_PER_USER = 5
# The same for all users together, so that another name each time does not avoid the limit. Several
# applications may share an address, each with its own user, and start at once.
LOGIN_BURST_PER_PEER = 10
# Addresses, and pairs of address and user, that are remembered. About 100 bytes each.
LOGINS_REMEMBERED = 10_000


class Throttle:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._peers = _Buckets(LOGIN_BURST_PER_PEER)
        self._users = _Buckets(LOGIN_BURST_PER_USER)

    def take(self, peer: str, user: str) -> float:
        """Take the right to one check. Returns 0, or how many seconds to wait if there is none."""
        now = self._clock()
        network = network_of(peer)
        wait = max(self._peers.wait(network, now), self._users.wait((network, user), now))
        if wait <= 0:
            self._peers.take(network, now)
            self._users.take((network, user), now)
        return wait

    def give_back(self, peer: str, user: str) -> None:
        """The check did not fail: it does not count."""
        network = network_of(peer)
        self._peers.give_back(network)
        self._users.give_back((network, user))


class _Buckets:
    """Token buckets that each are one number: when the bucket will be full again.

    A full bucket is not stored. Past the bound the least recently used one is dropped; a caller that makes up
    names for that purpose is limited by the bucket of its address.
    """

    def __init__(self, burst: int) -> None:
        self._interval = LOGIN_INTERVAL.total_seconds()
        self._span = self._interval * burst
        self._full_at: OrderedDict[int, float] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        return max(0.0, self._full_at.get(hash(key), now) + self._interval - now - self._span)

    def take(self, key: Hashable, now: float) -> None:
        # The hash alone, for its size: a name may have kilobytes. Equal hashes share a bucket.
        short = hash(key)
        self._full_at[short] = max(self._full_at.get(short, now), now) + self._interval
        self._full_at.move_to_end(short)
        if len(self._full_at) > LOGINS_REMEMBERED:
            self._full_at.popitem(last=False)

    def give_back(self, key: Hashable) -> None:
        short = hash(key)
        if short in self._full_at:
            self._full_at[short] -= self._interval


@lru_cache(maxsize=1024)  # a flood comes from few addresses, and reading one takes longer than the rest here
def network_of(peer: str) -> str:
    """The key of one caller: an IPv4 address, the /64 of an IPv6 customer, or the text itself."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer  # a unix socket, or a proxy that passes no address
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
    return peer


def plain_address(peer: str) -> str:
    """The address as an operator knows it: IPv4 as such, also if a socket for both families accepted it."""
    return peer.removeprefix("::ffff:") if "." in peer else peer
