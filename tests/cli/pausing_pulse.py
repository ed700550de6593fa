"""`pulse` whose action on many jobs waits for Ctrl-C after two batches: `python -m tests.cli.pausing_pulse`.

With its own pace it may be done before a busy test interrupts it.
"""

import time
from types import FrameType

from pulse_cli.jobs import bulk
from pulse_cli.main import main


class _Awaited:
    """Takes the place of bulk.Interrupts, which is asked after each batch."""

    def __init__(self) -> None:
        self._batches = 0
        self._has_come = False

    def request(self, _signal: int, _frame: FrameType | None) -> None:
        self._has_come = True

    @property
    def is_requested(self) -> bool:
        self._batches += 1
        while self._batches >= 2 and not self._has_come:
            time.sleep(0.01)
        return self._has_come


if __name__ == "__main__":
    bulk.Interrupts = _Awaited  # type: ignore[assignment, misc]
    main()
