"""Notices that jobs have changed, so that whoever waits for them need not wait for its next look."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from pulse_cli import tuning

if TYPE_CHECKING:
    from pulse import SyncPulse


class Notice:
    """Wakes its owner when one of the jobs changes, or may have. It may be late, and it may never come.

    An earlier server cannot tell, and not every user may be told: then nothing is noticed, and the owner's
    own pace is all there is. A thread watches; it ends with the client.
    """

    def __init__(self, client: SyncPulse, job_ids: Sequence[str], topics: Sequence[str]) -> None:
        self._client = client
        self._job_ids = job_ids if len(job_ids) <= tuning.LARGEST_WATCH else ()
        self._topics = topics if not self._job_ids else ()
        self._changed = threading.Event()
        threading.Thread(target=self._watch, name="pulse-notice", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait until something has changed, but no longer than this. Returns whether it has."""
        has_changed = self._changed.wait(seconds)
        self._changed.clear()
        return has_changed

    def _watch(self) -> None:
        import pulse

        try:
            for _ in self._client.watch(topics=self._topics, job_ids=self._job_ids):
                self._changed.set()
        except (pulse.PulseError, CancelledError):
            pass
