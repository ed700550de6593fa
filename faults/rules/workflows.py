"""I27 to I29: jobs of workflows start after their conditions held, become ready once, and none is forgotten.

What each rule reads:

    I27  the changes of jobs (claims, and the mark `held`), the edges at the end of the run, and the outcomes
         that settlers counted
    I28  the changes of jobs, and when operators canceled a workflow
    I29  pulse.workflows, workflow_jobs, workflow_edges and workflow_notices, and the statuses of jobs: at the
         end, and now and then during the run, as of one snapshot (`out_of_step`); the changes of jobs, and
         the outcomes that settlers counted

The settler sees a parent's end once that is committed. So the seq of the end is lower than the seq of the
change that the settler makes, and the order of seq can be trusted here across jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import CANCEL, CLAIMS, REDRIVE, JobChange, OutcomeChange
from faults.evidence import Evidence, Step
from faults.violations import Violation
from faults.workflows.model import CANCELED, DONE, SKIPPED, outcome_of
from faults.workflows.shapes import ALWAYS, FAILED, SUCCEEDED
from faults.workflows.tables import WorkflowJobRow

STARTS_AFTER = "a job starts only after its condition held"
READY_AFTER = "a job becomes ready only after its condition held"
HELD_WAITS = "a job that waits for others is not ready, and not claimed"
READY_ONCE = "a job becomes ready once for each time that it waited"
COUNTED_AS_IT_STANDS = "a settler counts a job as it stands, whatever a notice says"
NOTICES_ARE_TAKEN = "no notice is left once all jobs have ended"
NONE_AFTER_CANCEL = "no job of a canceled workflow becomes ready"

# A commit has its time before others can see it. In microseconds; longer than a process is frozen.
VISIBLE_WITHIN = 5_000_000


def check_conditions(evidence: Evidence) -> Iterator[Violation]:
    """I27."""
    workflows = evidence.audit.workflows
    for job_id, parents in workflows.parents.items():
        job = workflows.by_id[job_id]
        for verb, change in evidence.lives.get(job_id, ()):
            rule = STARTS_AFTER if verb in CLAIMS else READY_AFTER if _becomes_ready(change) else None
            if rule is not None and (doubt := _doubt(evidence, job, parents, change.seq)):
                yield _violation("I27", rule, f"{job.name} ({job.condition}): {doubt}", change)


def check_readiness(evidence: Evidence) -> Iterator[Violation]:
    """I28."""
    for life in evidence.lives.values():
        waits, times = 0, 0
        for verb, change in life:
            old, new = change.old, change.new
            if new is not None and new.held and (new.ready or verb in CLAIMS):
                what = f"It became {new.status}{', ready,' if new.ready else ''} while it waited for others."
                yield _violation("I28", HELD_WAITS, what, change)
            waits += new is not None and new.held and (old is None or not old.held)
            if _becomes_ready(change):
                times += 1
                yield from _check_canceled(evidence, change)
                if times > waits:
                    what = f"It became ready for the {times}. time, and waited {waits} times."
                    yield _violation("I28", READY_ONCE, what, change)


def check_at_rest(evidence: Evidence) -> Iterator[Violation]:
    """I29, at the end of a run."""
    for workflow_id in sorted(evidence.audit.workflows.noticed):
        yield Violation("I29", NOTICES_ARE_TAKEN, f"Workflow {workflow_id} has notices at the end.")
    yield from check_in_step(evidence)
    yield from check_counting(evidence, VISIBLE_WITHIN)


def check_in_step(evidence: Evidence) -> Iterator[Violation]:
    """I29: workflows without notices, at this moment and at the looks before."""
    for wrong in evidence.audit.workflows.wrong():
        yield Violation("I29", wrong.rule, wrong.what, wrong.job_id)
    for event in evidence.events:
        if event.what == "out_of_step":
            facts, at = event.facts, evidence.clock.earliest(event.t)
            yield Violation("I29", facts["rule"], facts["text"], facts["job_id"], at=at)


def check_counting(evidence: Evidence, visible_within: int) -> Iterator[Violation]:
    """I29. What was committed that long before the settler began, in microseconds, is known to it."""
    for counted in evidence.audit.outcomes:
        possible = _outcomes_around(evidence, counted, visible_within)
        if possible and counted.outcome not in possible:
            name = evidence.audit.workflows.by_id[counted.job_id].name
            what = f"{name} counted as {counted.outcome}, and it was {', '.join(map(str, possible))}."
            yield Violation("I29", COUNTED_AS_IT_STANDS, what, counted.job_id, at=counted.at)


def _outcomes_around(evidence: Evidence, counted: OutcomeChange, visible_within: int) -> list[str | None]:
    """How the job stood when the settler began, and since. A skipped job may count as canceled."""
    possible: list[str | None] = []
    for _, change in evidence.lives.get(counted.job_id, ()):
        if change.seq > counted.seq:
            break
        if change.new is None:
            continue  # deleted: its end counts
        if (change.committed or change.at) < counted.statement_at - visible_within:
            possible.clear()
        outcome = outcome_of(change.new.status, "")
        possible += [outcome, SKIPPED] if outcome == CANCELED else [outcome]
    return possible


def is_of_its_workflow(evidence: Evidence, step: Step) -> bool:
    """Whether the settler may have canceled the job, or brought it back: its parents demanded it."""
    verb, change = step
    job = evidence.audit.workflows.by_id.get(change.job_id)
    if job is None or change.old is None or not change.old.held:
        return False
    parents = evidence.audit.workflows.parents.get(change.job_id, ())
    if verb == REDRIVE:
        return any(_may_stand_otherwise(evidence, parent, change) for parent in parents)
    ends = [_ends(evidence, parent, change.seq) for parent in parents]
    if verb != CANCEL or job.condition == ALWAYS:
        return False
    if job.condition == FAILED:
        return all(ends)
    return any(end != DONE for outcomes in ends for end in outcomes)


def _ends(evidence: Evidence, job: WorkflowJobRow, before: int) -> list[str]:
    """How the job ended, before that seq. An operator may have brought it back since."""
    changes = [change for _, change in evidence.lives.get(job.job_id, ()) if change.seq < before]
    return [outcome for change in changes if (outcome := _outcome(change)) is not None]


def _outcome(change: JobChange) -> str | None:
    """The outcome of a job that the change ended."""
    old, new = change.old, change.new
    is_end = new is not None and (old is None or old.status != new.status)
    return outcome_of(new.status, "") if new is not None and is_end else None


def _doubt(evidence: Evidence, job: WorkflowJobRow, parents: list[WorkflowJobRow], seq: int) -> str:
    """Why the condition had certainly not held before that seq. Empty: it may have."""
    ends = {parent.name: _ends(evidence, parent, seq) for parent in parents}
    if job.condition == SUCCEEDED:
        late = [name for name, outcomes in ends.items() if DONE not in outcomes]
        return f"{', '.join(late)} had not completed." if late else ""
    late = [name for name, outcomes in ends.items() if not outcomes]
    if late:
        return f"{', '.join(late)} had not ended."
    # A skipped job is canceled, too: the settlers' count decides whether it was.
    if job.condition == FAILED and all(
        evidence.bad_since.get(parent.job_id, seq) >= seq for parent in parents
    ):
        return "none of its parents had failed."
    return ""


def _becomes_ready(change: JobChange) -> bool:
    old, new = change.old, change.new
    return old is not None and new is not None and old.held and not new.held


def _may_stand_otherwise(evidence: Evidence, job: WorkflowJobRow, change: JobChange) -> bool:
    """Whether a parent may count otherwise than before: it was brought back, or its workflow canceled it.

    A skipped job is dropped, without a change of its own, once another of its parents fails.
    """
    return any(
        verb == REDRIVE or (verb == CANCEL and earlier.old is not None and earlier.old.held)
        for verb, earlier in evidence.lives.get(job.job_id, ())
        if earlier.seq < change.seq or earlier.txid == change.txid
    )


def _check_canceled(evidence: Evidence, change: JobChange) -> Iterator[Violation]:
    """Judge by the last cancel of a workflow that stayed canceled. An earlier one may have found it ended."""
    workflow_id, clock = evidence.audit.workflows.workflow_of(change.job_id), evidence.clock
    if workflow_id not in evidence.audit.workflows.canceled:
        return
    answers = [
        request.ended
        for request in evidence.requests["cancel_workflow"]
        if request.facts["workflow_id"] == workflow_id and request.how == "done" and request.ended is not None
    ]
    if answers and (late := change.statement_at - clock.latest(max(answers))) > 0:
        what = f"It became ready {late / 1e6:.6f} s after the cancel of its workflow was acknowledged."
        yield _violation("I28", NONE_AFTER_CANCEL, what, change)


def _violation(invariant: str, rule: str, what: str, change: JobChange) -> Violation:
    return Violation(invariant, rule, what, change.job_id, at=change.at, seq=change.seq)
