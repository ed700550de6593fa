"""Why jobs cannot be added to a workflow in memory. ADR-0077"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulse_server.domain.jobs import Job
from pulse_server.domain.status import JobStatus
from pulse_server.domain.workflows import NewNode, WorkflowBounds
from pulse_server.memory.workflow_rows import NodeRow, WorkflowRow


def problem_of(
    workflow: WorkflowRow,
    new: Sequence[NewNode],
    bounds: WorkflowBounds,
    taken: Sequence[str],
    jobs: Mapping[str, Job],
) -> tuple[str | None, Sequence[str]]:
    """The problem of the addition, as in `Addition`, and the names of the jobs that cause it.

    `taken` has the jobs whose unique keys other jobs hold.
    """
    own = {node.name for node in new}
    parents = sorted({name for node in new for name in node.after} - own)
    children = sorted({name for node in new for name in node.before})
    known = {row.name: row for row in workflow.nodes}
    edges = workflow.edges + sum(len(node.after) + len(node.before) for node in new)
    if unknown := [name for name in parents + children if name not in known]:
        return "unknown", unknown
    if late := [name for name in children if not _waits(jobs.get(known[name].job_id))]:
        return "late", late
    below = _below([known[name] for name in children])
    if circular := [name for name in parents if known[name] in below]:
        return "cycle", circular
    if taken:
        return "taken", taken
    if new and (len(workflow.nodes) + len(new) > bounds.jobs or edges > bounds.edges):
        return "many", ()
    return None, ()


def _waits(job: Job | None) -> bool:
    return job is not None and job.held and job.status is JobStatus.PENDING


def _below(rows: Sequence[NodeRow]) -> set[NodeRow]:
    """The rows, and all that wait for them."""
    found: set[NodeRow] = set()
    left = list(rows)
    while left:
        row = left.pop()
        if row not in found:
            found.add(row)
            left += row.children
    return found
