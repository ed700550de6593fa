"""The actions on jobs: the statuses they apply to, and their words."""

from __future__ import annotations

from dataclasses import dataclass

from pulse import JobStatus
from pulse_text.jobs import LIVE, RETRYABLE, STATUS_WORDS, TERMINAL
from pulse_ui.words import plural


@dataclass(frozen=True, slots=True)
class JobAction:
    verb: str
    """As in its URL."""
    label: str
    """On its button."""
    done: str
    """The past participle, such as canceled."""
    needs: str
    """The RPC."""
    statuses: tuple[str, ...]
    """The statuses it applies to."""
    consequence: str
    """Its effect, shown before the confirmation."""
    needs_status: bool = False
    """pulsed requires a status for an action on many."""
    is_grave: bool = False

    def takes(self, status: JobStatus | None) -> bool:
        """True if it applies to all jobs of this status; None: of any status."""
        return not self.needs_status if status is None else status in self.statuses

    def sentence(self, jobs: str) -> str:
        """Return the action in words: "Cancel 3 jobs"."""
        return f"Change the priority of {jobs}" if self.verb == "prioritize" else f"{self.label} {jobs}"

    def question(self, number: int) -> str:
        return self.sentence(plural(number, "job"))

    @property
    def can_be_undone(self) -> bool:
        return self.verb != "delete"

    @property
    def able(self) -> str:
        """The statuses in words: "dead-lettered or canceled"."""
        *others, last = (STATUS_WORDS[status] for status in self.statuses)
        return f"{', '.join(others)} or {last}"


ACTIONS = {
    action.verb: action
    for action in (
        JobAction(
            "cancel",
            "Cancel",
            "canceled",
            "CancelJobs",
            LIVE,
            "Waiting jobs will not run. The handlers of running jobs are asked to stop. "
            "Canceled jobs can be retried.",
            is_grave=True,
        ),
        JobAction(
            "retry",
            "Retry",
            "retried",
            "RetryJobs",
            RETRYABLE,
            "They become pending, with further attempts. A canceled job that never started keeps its later "
            "start time.",
            needs_status=True,
        ),
        JobAction(
            "prioritize",
            "Change priority",
            "changed",
            "PrioritizeJobs",
            LIVE,
            "Jobs with a higher priority run first. Running jobs are not interrupted.",
        ),
        JobAction(
            "delete",
            "Delete",
            "deleted",
            "DeleteJobs",
            TERMINAL,
            "They are deleted with their payloads, histories and idempotency keys. This cannot be undone.",
            needs_status=True,
            is_grave=True,
        ),
    )
}
