"""The wake-up line of a server that is alone."""

from __future__ import annotations

from collections.abc import Callable

from pulse_server.repos.wakeups import Wakeup


class LoneWakeupLine:
    """No other server uses the store: announcements have no receiver, and none arrive."""

    def announce(self, wakeup: Wakeup) -> None: ...

    def listen(self, heard: Callable[[Wakeup], None]) -> None: ...
