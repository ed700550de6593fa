"""The invariants of docs/job-lifecycle.md, each as the rules that prove it from the evidence of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from faults.evidence import Evidence
from faults.rules.attempts import check_attempts
from faults.rules.bystanders import check_bystanders
from faults.rules.crashes import check_crashes
from faults.rules.effects import check_effects
from faults.rules.ends import check_ends
from faults.rules.executions import check_completed_ran, check_none_started_after_completion
from faults.rules.keeping import check_finished_stay, check_healthy_keep
from faults.rules.lane_order import check_lane_order
from faults.rules.leases import check_leases
from faults.rules.limits import check_limits
from faults.rules.lines import check_lines
from faults.rules.moving import check_moving
from faults.rules.occurrences import check_occurrences
from faults.rules.order import check_order
from faults.rules.overlaps import check_overlaps
from faults.rules.pauses import check_pauses
from faults.rules.progress import check_progress
from faults.rules.rates import check_rates
from faults.rules.reaping import check_reaps
from faults.rules.refusals import check_refusals
from faults.rules.results import check_results
from faults.rules.snoozes import check_snoozes
from faults.rules.start_limits import check_start_limits
from faults.rules.steps import check_signals, check_steps
from faults.rules.strangers import check_strangers
from faults.rules.submits import check_submits
from faults.rules.submitting import check_submitting
from faults.rules.transitions import check_transitions
from faults.rules.unended import check_stopped
from faults.rules.unique_keys import check_unique_keys
from faults.rules.whole_workflows import check_whole_workflows
from faults.rules.workflows import check_at_rest, check_conditions, check_readiness
from faults.violations import Violation


def check_acknowledged(evidence: Evidence) -> Iterator[Violation]:
    return chain(check_submits(evidence), check_ends(evidence), check_reaps(evidence))


def check_work_moves(evidence: Evidence) -> Iterator[Violation]:
    return chain(
        check_moving(evidence),
        check_submitting(evidence),
        check_strangers(evidence),
        check_bystanders(evidence),
    )


@dataclass(frozen=True)
class Invariant:
    """A promise, and the function that finds where it was certainly broken."""

    number: str
    promise: str
    check: Callable[[Evidence], Iterable[Violation]]


INVARIANTS = (
    Invariant("I1", "every acknowledged submit ends once; none is lost, none doubled", check_acknowledged),
    Invariant("I2", "at most one valid lease at a time", check_leases),
    Invariant("I3", "attempts stay within their limit; none counts without a start", check_attempts),
    Invariant("I4", "a COMPLETED job's handler ran", check_completed_ran),
    Invariant("I5", "no handler starts after the completion", check_none_started_after_completion),
    Invariant("I6", "each occurrence of a schedule makes exactly one job", check_occurrences),
    Invariant("I7", "only legal transitions happen", check_transitions),
    Invariant("I8", "nothing is claimed while dispatch is paused, nor started after 2 s", check_pauses),
    Invariant("I9", "no healthy worker loses a job that it beats", check_healthy_keep),
    Invariant(
        "I10", "what finished does not run again, also when all servers were away", check_finished_stay
    ),
    Invariant("I11", "a snooze costs no attempt, and no run number is used again", check_snoozes),
    Invariant("I12", "no attempt starts after start_by", check_start_limits),
    Invariant("I13", "no job is lost more than max_crashes times before it is a dead letter", check_crashes),
    Invariant("I14", "at most one job of a unique key waits, lives, or is stored", check_unique_keys),
    Invariant("I15", "a schedule that does not overlap has one unfinished job", check_overlaps),
    Invariant("I16", "no more jobs run than the limits of topics, pools and lanes permit", check_limits),
    Invariant("I17", "no more jobs start in any period than rates permit, none in a hold", check_rates),
    Invariant("I18", "ordered lanes keep their order, also through retries", check_lane_order),
    Invariant("I19", "a lane with work and room is served; the counts agree with what runs", check_lines),
    Invariant("I20", "progress is its holder's, does not go back, and reaches the next", check_progress),
    Invariant("I21", "a step whose value was stored does not run again", check_steps),
    Invariant("I22", "an acknowledged signal is delivered exactly once", check_signals),
    Invariant("I23", "a waiter gets the result that is stored, which the handler returned", check_results),
    Invariant("I24", "no job starts while a better one has been ready for more than 2 s", check_order),
    Invariant("I25", "a ready job is claimed within 10 s while a worker has a slot for it", check_work_moves),
    Invariant("I26", "effects that are committed with the completion happen exactly once", check_effects),
    Invariant("I27", "a job of a workflow starts only after its condition held", check_conditions),
    Invariant("I28", "a job that waits for others becomes ready once, none after a cancel", check_readiness),
    Invariant("I29", "without notices the counts of workflows agree, and none waits in vain", check_at_rest),
    Invariant(
        "I30", "a workflow is stored whole or not at all; a repeat adds nothing", check_whole_workflows
    ),
    Invariant("I31", "nothing ends that no report, operator or bound ended", check_stopped),
    Invariant("I32", "a change that was refused changed nothing", check_refusals),
)
