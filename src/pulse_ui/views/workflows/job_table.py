"""The jobs of a workflow as a table: chosen by their state or by a box of the drawing, in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

import pulse
from pulse_ui import tuning
from pulse_ui.views.workflows import states
from pulse_ui.views.workflows.folding import Folded
from pulse_ui.views.workflows.rows import WorkflowJobRow, job_row


@dataclass(frozen=True, slots=True)
class JobTable:
    workflow_id: str
    rows: tuple[WorkflowJobRow, ...]
    total: int
    """How many jobs were chosen, on all pages."""
    page: int
    pages: int
    tabs: tuple[tuple[str, str, int], ...]
    """The kind, the name and the number of each kind of jobs."""
    state: str
    """The kind of its jobs; empty: all."""
    like: str
    """The number of the box whose jobs it has; empty: all."""

    def path(self, **changes: str) -> str:
        """Return the URL of the table with some fields changed; "" removes one."""
        return jobs_path(self.workflow_id, **{"state": self.state, "like": self.like, **changes})


def jobs_path(workflow_id: str, **fields: str) -> str:
    """Return the URL of the jobs of a workflow with this query."""
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"/workflows/{workflow_id}{'?' if query else ''}{query}#jobs"


def job_table(
    workflow_id: str,
    jobs: Sequence[pulse.WorkflowJob],
    folded: Folded | None,
    asked: Mapping[str, str],
    now: datetime,
) -> JobTable:
    """Return the table that was asked for. Invalid fields are ignored."""
    counts = states.counted(jobs)
    chosen, state, like = jobs, "", ""
    if (box := _number(asked.get("like", ""))) and folded is not None and box in folded.members:
        members = set(folded.members[box])
        chosen = [job for job in chosen if job.number in members]
        counts = states.counted(chosen)
        like = str(box)
    if (kind := asked.get("state", "").upper()) in states.ORDER:
        chosen = [job for job in chosen if states.kind_of(job) == kind]
        state = kind.lower()
    pages = max(1, -(-len(chosen) // tuning.WORKFLOW_ROWS))
    page = min(max(1, _number(asked.get("page", ""))), pages)
    first = (page - 1) * tuning.WORKFLOW_ROWS
    by_number = {job.number: job for job in jobs}
    return JobTable(
        workflow_id,
        tuple(job_row(job, by_number, now) for job in chosen[first : first + tuning.WORKFLOW_ROWS]),
        len(chosen),
        page,
        pages,
        tuple((kind.lower(), states.NAMES[kind], number) for kind, number in counts.items()),
        state,
        like,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
