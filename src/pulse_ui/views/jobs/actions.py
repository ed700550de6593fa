"""What can be done to jobs, to which, and how it is said."""

from __future__ import annotations

from dataclasses import dataclass

from pulse import JobStatus
from pulse_text import statuses
from pulse_ui.views.words import plural


@dataclass(frozen=True, slots=True)
class JobAction:
    verb: str
    """As in its address."""
    label: str
    """On the button that leads to it."""
    done: str
    """What its jobs have been afterwards."""
    needs: str
    """The call of the contract."""
    statuses: tuple[str, ...]
    """The jobs that it can be done to."""
    consequence: str
    """What it does, for somebody who is about to."""
    needs_status: bool = False
    """pulsed does it to many only if it is told which status."""
    is_grave: bool = False

    def takes(self, status: JobStatus | None) -> bool:
        """True if jobs of this status, or of any, can have it done to all of them."""
        return not self.needs_status if status is None else status in self.statuses

    def sentence(self, jobs: str) -> str:
        """Say it of some jobs: "Cancel 3 jobs"."""
        return f"Change the priority of {jobs}" if self.verb == "prioritize" else f"{self.label} {jobs}"

    def question(self, number: int) -> str:
        return self.sentence(plural(number, "job"))

    @property
    def able(self) -> str:
        """The statuses in words: "dead-lettered or canceled"."""
        *others, last = (statuses.IN_SENTENCES[status] for status in self.statuses)
        return f"{', '.join(others)} or {last}"


ACTIONS = {
    action.verb: action
    for action in (
        JobAction(
            "cancel",
            "Cancel",
            "canceled",
            "CancelJobs",
            statuses.LIVE,
            "Those that wait will not run. Those that run lose their worker: it is told to stop. "
            "Canceled jobs can be brought back with a retry.",
            is_grave=True,
        ),
        JobAction(
            "retry",
            "Retry",
            "retried",
            "RetryJobs",
            statuses.RETRYABLE,
            "They become pending at once, with further attempts ahead.",
            needs_status=True,
        ),
        JobAction(
            "prioritize",
            "Change priority",
            "changed",
            "PrioritizeJobs",
            statuses.LIVE,
            "Workers take jobs of higher priority first. Those that run keep running.",
        ),
        JobAction(
            "delete",
            "Delete",
            "deleted",
            "DeleteJobs",
            statuses.TERMINAL,
            "They are gone for good, with their payloads, histories and idempotency keys.",
            needs_status=True,
            is_grave=True,
        ),
    )
}
