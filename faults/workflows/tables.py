"""The tables of workflows as of one moment, and what is wrong with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from faults.workflows.model import (
    DONE,
    DROPPED,
    SKIPPED,
    WAITING,
    Counts,
    count,
    outcome_of,
    verdict,
)

COUNTS_AGREE = "the counts of a job agree with its edges"
OUTCOMES_AGREE = "the outcome of a job agrees with its status"
NONE_WAITS_IN_VAIN = "no job waits whose parents decide what becomes of it"
DROPPED_RIGHTLY = "a job is dropped or skipped exactly as long as its parents demand it"
TOTALS_AGREE = "the totals of a workflow agree with its jobs"
IS_WHOLE = "a workflow has all of its jobs, each name once"


class WorkflowRow(NamedTuple):
    """A row of pulse.workflows."""

    id: str
    jobs: int
    unfinished: int
    succeeded: int
    failed: int
    canceled: int
    skipped: int
    is_finished: bool
    is_canceled: bool


class WorkflowJobRow(NamedTuple):
    """A row of pulse.workflow_jobs, with the status of its job."""

    job_id: str
    workflow_id: str
    number: int
    name: str
    condition: str
    state: str
    outcome: str | None
    counts: Counts
    status: str | None  # None: the job was deleted


class Edge(NamedTuple):
    """A row of pulse.workflow_edges, with numbers of jobs."""

    workflow_id: str
    parent: int
    child: int


class Wrong(NamedTuple):
    """A fact that does not hold."""

    rule: str
    what: str
    job_id: str | None = None


@dataclass(frozen=True)
class WorkflowTables:
    """All rows, as of one moment."""

    workflows: list[WorkflowRow] = field(default_factory=list)
    jobs: list[WorkflowJobRow] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    noticed: frozenset[str] = frozenset()
    """Workflows that have notices: settlers have not brought them in step yet."""

    @cached_property
    def canceled(self) -> frozenset[str]:
        """Workflows that were canceled as a whole."""
        return frozenset(row.id for row in self.workflows if row.is_canceled)

    @cached_property
    def by_id(self) -> dict[str, WorkflowJobRow]:
        return {job.job_id: job for job in self.jobs}

    @cached_property
    def parents(self) -> dict[str, list[WorkflowJobRow]]:
        """The parents of each job that has some."""
        by_number = {(job.workflow_id, job.number): job for job in self.jobs}
        found: defaultdict[str, list[WorkflowJobRow]] = defaultdict(list)
        for workflow_id, parent, child in self.edges:
            found[by_number[workflow_id, child].job_id].append(by_number[workflow_id, parent])
        return dict(found)

    def workflow_of(self, job_id: str) -> str | None:
        job = self.by_id.get(job_id)
        return None if job is None else job.workflow_id

    def outcomes_before(self, job: WorkflowJobRow) -> list[str | None]:
        return [parent.outcome for parent in self.parents.get(job.job_id, ())]

    def wrong(self) -> Iterator[Wrong]:
        """What is wrong with workflows that have no notice."""
        for job in self.jobs:
            if job.workflow_id not in self.noticed:
                yield from self._wrong_with(job, is_canceled=job.workflow_id in self.canceled)
        yield from self._wrong_totals()

    def _wrong_with(self, job: WorkflowJobRow, *, is_canceled: bool) -> Iterator[Wrong]:
        outcomes = self.outcomes_before(job)
        stands = f"{job.name} ({job.condition}, {job.state}, {job.status})"
        if job.counts != count(outcomes):
            yield Wrong(COUNTS_AGREE, f"{stands} has {job.counts}, and its parents: {outcomes}.", job.job_id)
        if job.status is None:
            return
        if job.outcome != outcome_of(job.status, job.state):
            yield Wrong(OUTCOMES_AGREE, f"{stands} has the outcome {job.outcome}.", job.job_id)
        # An operator who cancels a workflow does that before its jobs are canceled.
        demanded = job.state if is_canceled else verdict(job.condition, outcomes)
        if job.state == WAITING and job.outcome is None and demanded != WAITING:
            yield Wrong(NONE_WAITS_IN_VAIN, f"{stands} waits, and its parents: {outcomes}.", job.job_id)
        if job.state in (DROPPED, SKIPPED) and demanded != job.state:
            yield Wrong(DROPPED_RIGHTLY, f"{stands}, and its parents: {outcomes}.", job.job_id)

    def _wrong_totals(self) -> Iterator[Wrong]:
        by_workflow: defaultdict[str, list[WorkflowJobRow]] = defaultdict(list)
        for job in self.jobs:
            by_workflow[job.workflow_id].append(job)
        for row in self.workflows:
            jobs = by_workflow[row.id]
            if row.id in self.noticed:
                continue
            names = Counter(job.name for job in jobs)
            if len(jobs) != row.jobs or any(times > 1 for times in names.values()):
                yield Wrong(IS_WHOLE, f"Workflow {row.id} of {row.jobs} jobs has {sorted(names)}.")
            totals = Counter(job.outcome for job in jobs)
            counted = (row.unfinished, row.succeeded, row.failed, row.canceled, row.skipped)
            real = tuple(totals[outcome] for outcome in (None, DONE, "failed", "canceled", SKIPPED))
            if counted != real or row.is_finished != (row.unfinished == 0):
                is_finished = "finished" if row.is_finished else "not finished"
                yield Wrong(TOTALS_AGREE, f"Workflow {row.id} counts {counted}, {is_finished}, not {real}.")
        for workflow_id in sorted(by_workflow.keys() - {row.id for row in self.workflows}):
            yield Wrong(IS_WHOLE, f"Workflow {workflow_id} has jobs, and no row.")


_SOME = "WHERE $1 OR workflow_id IN (SELECT id FROM pulse.workflows WHERE finished_at IS NULL)"
_WORKFLOWS = """
SELECT id::text, jobs, unfinished, succeeded, failed, canceled, skipped,
    finished_at IS NOT NULL, canceled_at IS NOT NULL
FROM pulse.workflows
WHERE $1 OR finished_at IS NULL
"""
_JOBS = f"""
SELECT node.job_id::text, node.workflow_id::text, node.number, node.name, node.condition,
    CASE
        WHEN node.dropped IS NOT NULL AND node.outcome IS NOT NULL THEN node.dropped
        WHEN job.held THEN 'waiting'
        ELSE 'ready'
    END,
    node.outcome, node.unended, node.failed, node.skipped, job.status
FROM (SELECT * FROM pulse.workflow_jobs {_SOME}) AS node
LEFT JOIN pulse.all_jobs AS job ON job.id = node.job_id
ORDER BY node.workflow_id, node.number
"""
_EDGES = f"""
SELECT child.workflow_id::text, edge.number, child.number
FROM (SELECT * FROM pulse.workflow_jobs {_SOME}) AS child
JOIN pulse.workflow_edges AS edge ON edge.child = child.job_id
"""
_NOTICED = "SELECT DISTINCT workflow_id::text FROM pulse.workflow_notices"


async def read_workflows(connection: Any, *, finished: bool = True) -> WorkflowTables:
    """Read them, within a transaction of the caller that has one snapshot. Without `finished`: the others."""
    jobs = [tuple(row) for row in await connection.fetch(_JOBS, finished)]
    return WorkflowTables(
        [WorkflowRow(*row) for row in await connection.fetch(_WORKFLOWS, finished)],
        [WorkflowJobRow(*row[:7], Counts(*row[7:10]), row[10]) for row in jobs],
        [Edge(*row) for row in await connection.fetch(_EDGES, finished)],
        frozenset(row[0] for row in await connection.fetch(_NOTICED)),
    )
