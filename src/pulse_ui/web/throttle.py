"""Holds back whoever tries many passwords: a few at once, then one every now and then, from each address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from pulse_ui import tuning


class LoginThrottle:
    """A bucket of tries for each address, refilled as time goes by. Whoever gets in pays nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def seconds_to_wait(self, address: str) -> float:
        """Return how long this address has to wait for its next try; 0: it may try now."""
        missing = 1.0 - self._tries(address)
        return max(0.0, missing * tuning.LOGIN_TRY_EVERY.total_seconds())

    def failed(self, address: str) -> None:
        """Take one try away."""
        self._buckets[address] = (self._tries(address) - 1.0, self._clock())
        self._buckets.move_to_end(address)
        while len(self._buckets) > tuning.LOGIN_ADDRESSES:
            self._buckets.popitem(last=False)

    def _tries(self, address: str) -> float:
        tries, at = self._buckets.get(address, (float(tuning.LOGIN_TRIES), self._clock()))
        refilled = tries + (self._clock() - at) / tuning.LOGIN_TRY_EVERY.total_seconds()
        return min(float(tuning.LOGIN_TRIES), refilled)
