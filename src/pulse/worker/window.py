"""How many jobs a worker asks for: its handlers, and a little work ahead of them if they are fast."""

from __future__ import annotations

from pulse import tuning


class Window:
    """Follows how long handlers take, and says how many jobs the worker can hold.

    Slow handlers get no work ahead: a job that merely waits here could run elsewhere. Hence it narrows at
    once, and widens at most twofold, after a whole window of jobs has shown that the handlers are fast: one
    quick job among slow ones proves nothing.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._size = concurrency
        self._finished_at_this_size = 0
        self._mean_seconds: float | None = None
        self._finished = 0
        self._busy_seconds = 0.0
        self._announced = concurrency
        self._is_closed = False

    def observe(self, seconds: float, finished: int = 1) -> None:
        """Count a handler that took this long, or several that took it together."""
        self._finished += finished
        self._busy_seconds += seconds

    @property
    def size(self) -> int:
        """How many jobs the worker can hold now."""
        if self._finished:
            self._learn()
        return self._size

    def announce(self) -> int:
        """Return the size to tell the server, and take it as told."""
        self._announced = self.size
        return self._announced

    def news(self) -> int:
        """Return the size if it moved noticeably since it was last told, else 0."""
        size = self.size
        if self._is_closed or abs(size - self._announced) <= self._announced * tuning.WINDOW_NOTICEABLE:
            return 0
        return size

    @property
    def run_seconds(self) -> float:
        """How long a handler takes, about; 0 while that is not known."""
        return self._mean_seconds or 0.0

    def close(self) -> None:
        """Have no more news: the worker stops, and what it finishes must not invite more."""
        self._is_closed = True

    def told(self, size: int) -> None:
        """Take note that the server knows this size."""
        if size:
            self._announced = size

    def stall(self, capacity: int) -> None:
        """Narrow to the concurrency: jobs waited too long for a handler. The server knows this capacity.

        Called from the heartbeat thread. An observation that is lost to it costs nothing.
        """
        self._size, self._finished_at_this_size = self._concurrency, 0
        self._mean_seconds = max(self._mean_seconds or 0.0, tuning.HOLD_SECONDS)
        self._announced = capacity

    def _learn(self) -> None:
        mean = self._busy_seconds / self._finished
        self._finished_at_this_size += self._finished
        self._finished, self._busy_seconds = 0, 0.0
        known = self._mean_seconds
        if known is not None:
            weight = tuning.SLOWER_WEIGHT if mean > known else tuning.FASTER_WEIGHT
            mean = known + weight * (mean - known)
        self._mean_seconds = mean
        ahead = self._concurrency * tuning.PREFETCH_SECONDS / max(mean, 1e-6)
        fitting = min(self._concurrency + min(int(ahead), tuning.PREFETCH_MOST), tuning.WINDOW_MOST)
        if fitting > self._size:
            if self._finished_at_this_size < self._size:
                return
            fitting = min(fitting, 2 * self._size)
        if fitting != self._size:
            self._size, self._finished_at_this_size = fitting, 0
