"""The jobs that a job waits for, in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_ui.views import words
from pulse_ui.views.workflows import states

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Waits:
    """The jobs that a job waits for, as far as they were read."""

    unended: pulse.WorkflowJobPage
    parents: pulse.WorkflowJobPage
    """Ended or not."""

    def in_words(self, now: datetime) -> str:
        """Return "2 of 5: extract-mon (running for 3 s), extract-tue (retrying in 4 s)"."""
        named = [
            f"{printable.one_line(job.name)} ({states.brief(job, now)})" for job in self.unended.jobs[:_NAMED]
        ]
        if len(self.unended) > _NAMED or self.unended.next_cursor:
            named.append("…")
        return f"{_count(self.unended)} of {_count(self.parents)}{': ' if named else ''}{', '.join(named)}"


def _count(page: pulse.WorkflowJobPage) -> str:
    return f"{words.count(len(page))}{'+' if page.next_cursor else ''}"
