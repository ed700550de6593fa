"""Throttles logins per address: a few at once, then one at intervals."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from pulse_ui import tuning


class LoginThrottle:
    """A token bucket per address. A successful login costs nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> float:
        """Take one token. Returns 0, or the seconds to wait if there is none left.

        Taken before the password is checked: concurrent logins would otherwise all find a full bucket.
        """
        network = _network_of(address)
        tries = self._tries(network)
        if tries < 1.0:
            return (1.0 - tries) * tuning.LOGIN_TRY_EVERY.total_seconds()
        self._set(network, tries - 1.0)
        return 0.0

    def give_back(self, address: str) -> None:
        """Return a token: the password was right, or was not checked."""
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
    """Return the address to throttle: for IPv6 the /64, which belongs to one customer."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.IPv6Address(int(parsed) >> 64 << 64))
    return address
