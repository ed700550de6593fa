"""The capacity that a worker asks for: its concurrency, and some prefetch if its handlers are fast."""

from __future__ import annotations

from pulse import tuning

# How many times as wide the window becomes in a step. By doubling a worker took 200 ms of fast jobs to reach
# its widest; with 4 a drain of 20,000 jobs is 5% faster.
_STEP = 4


class Window:
    """Computes how many jobs the worker can hold from the run times of its handlers.

    Slow handlers get no prefetch: a job that only waits here could run elsewhere. Hence the window narrows at
    once. It widens in steps, each after a whole window of fast jobs: one fast job among slow ones is no
    evidence.
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
        self._is_resized = False

    def observe(self, seconds: float, finished: int = 1) -> None:
        """Add a run time: of one handler, or the total of several."""
        self._finished += finished
        self._busy_seconds += seconds

    @property
    def concurrency(self) -> int:
        """The number of jobs that run at once."""
        return self._concurrency

    @property
    def size(self) -> int:
        """The number of jobs that the worker can hold now."""
        if self._finished:
            self._learn()
        return self._size

    def announce(self) -> int:
        """Return the size to send to the server, and record it as sent."""
        self._announced = self.size
        return self._announced

    def changed_size(self) -> int:
        """Return the size if it has changed noticeably since it was last sent, else 0."""
        size = self.size
        if self._is_closed or (
            not self._is_resized and abs(size - self._announced) <= self._announced * tuning.WINDOW_NOTICEABLE
        ):
            return 0
        return size

    def resize(self, concurrency: int) -> None:
        """Set the number of jobs that run at once. The change is sent, however small it is."""
        is_smaller = concurrency < self._concurrency
        self._concurrency = concurrency
        self._size = min(self._size, concurrency) if is_smaller else max(self._size, concurrency)
        self._finished_at_this_size = 0
        self._is_resized = True

    @property
    def run_seconds(self) -> float:
        """The mean run time of a handler. 0 while it is unknown."""
        return self._mean_seconds or 0.0

    def close(self) -> None:
        """Report no more changes: the worker stops, or leaves its server, and must not ask for jobs."""
        self._is_closed = True

    def open(self) -> None:
        """Report changes again."""
        self._is_closed = False

    def acknowledged(self, size: int) -> None:
        """Record that the server has this size."""
        if size:
            self._announced = size
            self._is_resized &= size != self._size

    def stall(self, capacity: int) -> None:
        """Narrow to the concurrency, because jobs waited too long. The server has this capacity.

        Called from the heartbeat thread. A lost observation does no harm.
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
            fitting = min(fitting, _STEP * self._size)
        if fitting != self._size:
            self._size, self._finished_at_this_size = fitting, 0
