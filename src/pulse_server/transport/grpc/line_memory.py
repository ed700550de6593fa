"""Whether lines take too much of the memory of the process. ADR-0038"""

from __future__ import annotations

from pulse_server import tuning


class LineMemory:
    """The memory that the process may have while lines are open, by what it has without them.

    Memory that stays once all lines have ended is not theirs: thousands of workers take as much. Then lines
    may be opened again, and the limit is that memory and what lines may need. It falls with the memory.
    """

    def __init__(self) -> None:
        self.is_short = False
        self._limit = tuning.LINES_MEMORY
        self._is_known = False
        self._looks_without_lines = 0

    def look(self, resident: int, *, open_lines: int) -> None:
        """Take note of the memory of the process, and of how many lines are open."""
        self._limit = max(tuning.LINES_MEMORY, min(self._limit, resident + tuning.LINES_SPARE_MEMORY))
        self._looks_without_lines = 0 if open_lines else self._looks_without_lines + 1
        if not self._is_known or self._looks_without_lines >= tuning.LINES_LOOKS_UNTIL_FREED:
            self._limit = max(tuning.LINES_MEMORY, resident + tuning.LINES_SPARE_MEMORY)
        self._is_known = True
        self.is_short = resident > self._limit
