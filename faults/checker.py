"""Judges a run: reads the history and the audit, and proves or refutes the invariants.

An operation that ended with an error may or may not have happened. Only what no possible order of events
explains is a violation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from faults import history
from faults.audit import Connection, read_audit
from faults.bank import read_ledger
from faults.changes import BEAT, CLAIMS, PROMOTE, REAP, TOUCH
from faults.clock import CLOCK
from faults.evidence import Evidence
from faults.invariants import INVARIANTS
from faults.rules import attempts, effects, ends, limits, occurrences, submits
from faults.story import describe
from faults.violations import Violation

# The three counts of the report. What is neither lost nor doubled is illegal.
_LOST = frozenset(
    {
        submits.ACKNOWLEDGED_IS_STORED,
        ends.JOBS_END,
        ends.ROWS_STAY,
        ends.DONE_IS_DONE,
        occurrences.FIRED,
        effects.ARE_NOT_LOST,
        effects.JOBS_ARE_NOT_LOST,
    }
)
_DOUBLED = frozenset({submits.STORED_ONCE, submits.ONE_ANSWER, occurrences.FIRED_ONCE, effects.HAPPEN_ONCE})
_STORIES_PER_RULE = 2
# Of a step of the clock, in microseconds: longer than any of them.
_NEAR = 3_000_000


async def check_run(directory: Path, connection: Connection) -> Verdict:
    """Judge the histories in the directory against the audit of the database."""
    events = history.read(directory)
    is_clock_set = any(event.what == "fault" and event.facts["kind"] == CLOCK for event in events)
    audit = await read_audit(connection, is_clock_set=is_clock_set)
    return check(Evidence(events, audit, await read_ledger(connection)))


def check(evidence: Evidence) -> Verdict:
    """Judge the evidence."""
    violations = [found for invariant in INVARIANTS for found in invariant.check(evidence)]
    return Verdict(evidence, count(evidence), [found for found in violations if _is_certain(evidence, found)])


def _is_certain(evidence: Evidence, found: Violation) -> bool:
    """Whether it is no effect of a clock that was set: times of the database are compared with each other."""
    is_final = found.at is None or found.rule in _LOST | _DOUBLED
    return is_final or not evidence.clock.was_set(found.at or 0, _NEAR)


@dataclass(frozen=True)
class Verdict:
    """What happened, and which promises were broken. `counts` can be written as JSON."""

    evidence: Evidence
    counts: dict[str, int]
    violations: list[Violation]

    @property
    def is_good(self) -> bool:
        return not self.violations

    @property
    def lost(self) -> list[Violation]:
        return [violation for violation in self.violations if violation.rule in _LOST]

    @property
    def doubled(self) -> list[Violation]:
        return [violation for violation in self.violations if violation.rule in _DOUBLED]

    @property
    def illegal(self) -> list[Violation]:
        return [violation for violation in self.violations if violation.rule not in _LOST | _DOUBLED]

    def by_invariant(self) -> dict[str, list[Violation]]:
        """The violations of each invariant, also of those that held."""
        return {
            invariant.number: [found for found in self.violations if found.invariant == invariant.number]
            for invariant in INVARIANTS
        }

    def __str__(self) -> str:
        """A line per invariant, and for each broken rule the shortest stories that show it."""
        lines = [", ".join(f"{number:,} {name}" for name, number in self.counts.items()), ""]
        found = self.by_invariant()
        for invariant in INVARIANTS:
            number = len(found[invariant.number])
            judgment = "holds" if not number else f"BROKEN {_times(number)}"
            lines.append(f"{invariant.number}  {invariant.promise}: {judgment}")
        for rule, number in Counter(violation.rule for violation in self.violations).items():
            broken = [violation for violation in self.violations if violation.rule == rule]
            lines += ["", f"{broken[0].invariant}: {rule}. Broken {_times(number)}."]
            for violation in broken[:_STORIES_PER_RULE]:
                lines += ["", describe(self.evidence, violation)]
        return "\n".join(lines)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def count(evidence: Evidence) -> dict[str, int]:
    """Count what happened."""
    answers = Counter(submit.how for submit in evidence.requests["submit"])
    verbs = Counter(step.verb for life in evidence.lives.values() for step in life)
    return {
        "acked": answers["done"],
        "unknown": answers["unknown"],
        "refused": answers["refused"],
        "jobs": len(evidence.lives),
        "executions": sum(map(len, evidence.executions.values())),
        "claims": sum(verbs[claim] for claim in CLAIMS),
        "transitions": sum(verbs.values()) - verbs[BEAT] - verbs[PROMOTE] - verbs[TOUCH],
        "beats": verbs[BEAT],
        "reaped": verbs[REAP],
        **limits.count_starts(evidence),
        "limits": sum(event.what in ("policy", "pool", "lane") for event in evidence.audit.limits),
        "awaited": sum(request.how == "done" for request in evidence.requests["await"]),
        "excused": attempts.count_excused(evidence),
        "workflows": len(evidence.audit.workflows.workflows),
        "in_workflows": len(evidence.audit.workflows.jobs),
        "waited": len(evidence.audit.workflows.parents),
        "additions": sum(request.how == "done" for request in evidence.requests["add"]),
        "wishes": len(evidence.ledger.wishes),
        "transfers": len(evidence.ledger.transfers),
        "claims_lost": sum(event.what == "claim_lost" for event in evidence.events),
    }
