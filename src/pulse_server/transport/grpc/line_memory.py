"""Decides whether lines use too much memory of the process. ADR-0038"""

from __future__ import annotations

# Above this memory of the process, lines end and none is opened. Without lines the process stays
# below it, except for many large requests at once.
LINES_MEMORY = 320 * 1024 * 1024
# Memory that remains for LINES_LOOKS_UNTIL_FREED looks without a line does not belong to lines.
# Lines may take LINES_SPARE_MEMORY on top of it.
LINES_SPARE_MEMORY = 192 * 1024 * 1024
LINES_LOOKS_UNTIL_FREED = 10


class LineMemory:
    """The limit of the process's memory while lines are open, computed from its memory without lines.

    Memory that remains after all lines have ended is not theirs: thousands of workers use as much. Then lines
    may be opened again, and the limit is that memory plus what lines may need. The limit falls with the
    memory.
    """

    def __init__(self) -> None:
        self.is_short = False
        self._limit = LINES_MEMORY
        self._is_known = False
        self._looks_without_lines = 0

    def update(self, resident: int, *, open_lines: int) -> None:
        """Record the memory of the process and the number of open lines."""
        self._limit = max(LINES_MEMORY, min(self._limit, resident + LINES_SPARE_MEMORY))
        self._looks_without_lines = 0 if open_lines else self._looks_without_lines + 1
        if not self._is_known or self._looks_without_lines >= LINES_LOOKS_UNTIL_FREED:
            self._limit = max(LINES_MEMORY, resident + LINES_SPARE_MEMORY)
        self._is_known = True
        self.is_short = resident > self._limit
