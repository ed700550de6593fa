"""Slots that are lost to handlers which do not end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pulse.errors import SlotsLost
from pulse.handlers.log_records import records_of
from pulse.log_text import in_a_line
from pulse.worker.held_jobs import HeldJob
from pulse.worker.window import Window

logger = logging.getLogger("pulse.worker")


class LostSlots:
    """Counts the slots of handlers that were given up. A handler that ends after all gives its slot back.

    The capacity that the server knows shrinks with each, so that it sends fewer jobs. Too many end the
    worker: its supervisor starts a fresh one.
    """

    def __init__(
        self,
        slots: int,
        exit_at: int | None,
        window: Window,
        *,
        announce: Callable[[], None],
        stop: Callable[[BaseException], None],
    ) -> None:
        """`stop` is called once `exit_at` slots are lost; None means half of them."""
        self._slots = slots
        self._exit_at = min(exit_at or (slots + 1) // 2, slots)
        self._window = window
        self._announce = announce
        self._stop = stop
        self._jobs: set[HeldJob] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: HeldJob, stack: str) -> None:
        """Count the slot of a handler that is given up."""
        self._jobs.add(job)
        # A warning: what becomes of the job is logged apart, as an error if it is a dead letter.
        with records_of(job.context):
            logger.warning(
                "Job %s (%s) does not end although it was interrupted: its slot is lost (%d of %d). "
                "It is here:\n%s",
                job.job_id,
                in_a_line(job.handler.topic),
                len(self._jobs),
                self._slots,
                stack or "(its stack is not known)",
            )
        self._resize()
        if len(self._jobs) >= self._exit_at:
            self._stop(
                SlotsLost(
                    f"{len(self._jobs)} of {self._slots} slots are lost to handlers that do not end, so the "
                    "worker stops. Start a fresh one, and see its log for where they are stuck."
                )
            )

    def discard(self, job: HeldJob) -> bool:
        """Give back the slot of a handler whose task has ended. Returns whether it was lost.

        A thread may outlive its task, which ends with the event loop. Its slot stays lost.
        """
        if job not in self._jobs:
            return False
        if job.call is not None:
            return True
        self._jobs.remove(job)
        with records_of(job.context):
            topic = in_a_line(job.handler.topic)
            logger.info("Job %s (%s) has ended at last: its slot is free.", job.job_id, topic)
        self._resize()
        return True

    def _resize(self) -> None:
        self._window.resize(max(1, self._slots - len(self._jobs)))
        self._announce()
