"""Holds back whoever tries many passwords: a few at once, then one every now and then, from each address."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from pulse_ui import tuning


class LoginThrottle:
    """A bucket of tries for each address, refilled as time goes by. Whoever gets in pays nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> float:
        """Take one try. Returns 0, or how many seconds this address has to wait if it has none left.

        Taken before the password is looked at: many that come at once would otherwise all find a full bucket.
        """
        network = _network_of(address)
        tries = self._tries(network)
        if tries < 1.0:
            return (1.0 - tries) * tuning.LOGIN_TRY_EVERY.total_seconds()
        self._set(network, tries - 1.0)
        return 0.0

    def give_back(self, address: str) -> None:
        """The password was right, or nobody looked at it: the try does not count."""
        network = _network_of(address)
        self._set(network, self._tries(network) + 1.0)

    def _set(self, network: str, tries: float) -> None:
        self._buckets[network] = (tries, self._clock())
        self._buckets.move_to_end(network)
        while len(self._buckets) > tuning.LOGIN_ADDRESSES:
            self._buckets.popitem(last=False)

    def _tries(self, network: str) -> float:
        tries, at = self._buckets.get(network, (float(tuning.LOGIN_TRIES), self._clock()))
        refilled = tries + (self._clock() - at) / tuning.LOGIN_TRY_EVERY.total_seconds()
        return min(float(tuning.LOGIN_TRIES), refilled)


def _network_of(address: str) -> str:
    """Return what counts as one address: of IPv6 the /64, which one customer has all of."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.IPv6Address(int(parsed) >> 64 << 64))
    return address
