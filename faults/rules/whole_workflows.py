"""I30: a workflow is stored whole or not at all, and so are additions. A repeated addition adds nothing.

Reads the inserts of jobs with their transactions, pulse.workflow_jobs at the end, and the operations
`workflow` and `add`. Each job of a workflow has a key of its own. A handler that runs again adds the same
keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from faults.changes import CLAIMS, INSERT, JobChange
from faults.evidence import Evidence, Request
from faults.rules.workflows import VISIBLE_WITHIN
from faults.violations import Violation

STORED_WHOLE = "a workflow is stored whole or not at all"
ADDED_WHOLE = "additions of one call are stored together or not at all"
ADDED_ONCE = "a repeated addition adds nothing"
ADDED_BY_HOLDER = "only the holder of a running job adds to its workflow"


def check_whole_workflows(evidence: Evidence, visible_within: int = VISIBLE_WITHIN) -> Iterator[Violation]:
    """I30. `visible_within` is as in check_counting."""
    inserts = _inserts(evidence)
    for request in evidence.requests["workflow"]:
        yield from _check_whole(evidence, STORED_WHOLE, request, inserts)
    for request in evidence.requests["add"]:
        yield from _check_whole(evidence, ADDED_WHOLE, request, inserts)
    yield from _check_additions(evidence, inserts, visible_within)


Inserts = dict[str, list[JobChange]]


def _inserts(evidence: Evidence) -> Inserts:
    """The inserts of each key."""
    found: defaultdict[str, list[JobChange]] = defaultdict(list)
    for life in evidence.lives.values():
        for verb, change in life:
            if verb == INSERT and change.key is not None:
                found[change.key].append(change)
    return dict(found)


def _check_whole(evidence: Evidence, rule: str, request: Request, inserts: Inserts) -> Iterator[Violation]:
    keys: Sequence[str] = request.facts["keys"]
    stored = [inserts[key][0] for key in keys if key in inserts]
    if not stored:
        return
    if len(stored) < len(keys) or len({change.txid for change in stored}) > 1:
        transactions = len({change.txid for change in stored})
        what = f"{len(stored)} of {len(keys)} jobs were stored, in {transactions} transactions."
        yield Violation("I30", rule, what, stored[0].job_id, at=stored[0].at, seq=stored[0].seq)
        return
    workflows = evidence.audit.workflows
    homes = {workflows.workflow_of(change.job_id) for change in stored}
    wanted = request.facts.get("workflow_id") or workflows.workflow_of(request.facts["job_id"])
    if homes != {wanted}:
        what = f"The jobs of workflow {wanted} belong to {', '.join(sorted(map(str, homes)))}."
        yield Violation("I30", rule, what, stored[0].job_id, at=stored[0].at, seq=stored[0].seq)


def _check_additions(evidence: Evidence, inserts: Inserts, visible_within: int) -> Iterator[Violation]:
    requests: defaultdict[str, list[Request]] = defaultdict(list)
    for request in evidence.requests["add"]:
        for key in request.facts["keys"]:
            requests[key].append(request)
    for key, additions in requests.items():
        first, *more = inserts.get(key, [None])
        for change in more:
            assert change is not None
            what = f"{key} was added {len(more) + 1} times."
            yield Violation("I30", ADDED_ONCE, what, change.job_id, at=change.at, seq=change.seq)
        late = None if first is None else _lateness(evidence, additions, first)
        if first is not None and late is not None and late > visible_within:
            what = f"{key} was added {late / 1e6:.6f} s after the runs that asked for it had ended."
            yield Violation("I30", ADDED_BY_HOLDER, what, first.job_id, at=first.at, seq=first.seq)


def _lateness(evidence: Evidence, additions: Sequence[Request], insert: JobChange) -> int | None:
    """How long all runs that asked for it had been over when its statement began. None: one was not."""
    ends = [_end_of_run(evidence, addition) for addition in additions]
    known = [end for end in ends if end is not None]
    return insert.statement_at - max(known) if len(known) == len(ends) else None


def _end_of_run(evidence: Evidence, addition: Request) -> int | None:
    """When the run that asked for it was over."""
    is_held = False
    for verb, change in evidence.lives.get(addition.facts["job_id"], ()):
        new = change.new
        if verb in CLAIMS and new is not None and new.run == addition.facts["run"]:
            is_held = True
        elif is_held and (new is None or new.locked_by is None):
            return change.committed or change.at
    return None
