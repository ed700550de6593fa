"""The history and the audit of a run, indexed for the rules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from faults.audit import Audit
from faults.availability import Availability
from faults.bank import Ledger
from faults.changes import JobChange, JobState, verb_of
from faults.clock import Clock
from faults.disturbances import Disturbances
from faults.history import OPERATIONS, Event, ending
from faults.waits import Wait, waits_of


class Step(NamedTuple):
    """A change of a job, with its verb."""

    verb: str
    change: JobChange


@dataclass(slots=True, eq=False)
class Execution:
    """A handler that was started. `outcome` and `ended` are None if no end was recorded."""

    job_id: str
    attempt: int
    run: int
    worker: str
    who: str
    t: int
    outcome: str | None = None
    ended: int | None = None
    reads_progress: bool = False
    """Whether its handler recorded the progress that it started with."""
    progress: str | None = None
    result: Any = None
    """What the handler returned."""
    completing: int | None = None
    """When the handler was about to call ctx.complete."""

    def is_of(self, claim: JobState) -> bool:
        """Whether the claim started it. No claim of a job has the run number of another."""
        return (self.worker, self.run) == (claim.locked_by, claim.run)


@dataclass(slots=True, eq=False)
class Request:
    """An operation of a client. `how` is done, unknown or refused; `ended` is None without an answer."""

    name: str
    who: str
    sent: int
    facts: dict[str, Any]
    how: str = "unknown"
    ended: int | None = None
    answer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """The events of the history, the audit of the database, and the tables of the bank."""

    events: list[Event]
    audit: Audit
    ledger: Ledger = field(default_factory=Ledger)

    @cached_property
    def clock(self) -> Clock:
        return Clock.of(self.events)

    @cached_property
    def lives(self) -> dict[str, list[Step]]:
        """The changes of each job, in the order of the commits."""
        lives: defaultdict[str, list[Step]] = defaultdict(list)
        for change in self.audit.jobs:
            lives[change.job_id].append(Step(verb_of(change), change))
        return dict(lives)

    @cached_property
    def bad_since(self) -> dict[str, int]:
        """The seq since which a job of a workflow had been counted as failed or canceled, at least once."""
        return {
            change.job_id: change.seq
            for change in reversed(self.audit.outcomes)
            if change.outcome in ("failed", "canceled")
        }

    @cached_property
    def executions(self) -> dict[str, list[Execution]]:
        """The executions of each job, in the order of their starts."""
        found: defaultdict[str, list[Execution]] = defaultdict(list)
        by_claim: dict[tuple[str, str, int], Execution] = {}
        for event in self.events:
            if event.what not in ("started", "completing", "ended"):
                continue
            facts = event.facts
            claim = (facts["job_id"], facts["worker"], facts["run"])
            if event.what == "started":
                execution = Execution(claim[0], facts["attempt"], claim[2], claim[1], event.who, event.t)
                execution.reads_progress = "progress" in facts
                execution.progress = facts.get("progress")
                found[claim[0]].append(execution)
                by_claim[claim] = execution
            elif (known := by_claim.get(claim)) is not None and event.what == "completing":
                # Also after its end: a handler that was canceled may go on.
                known.completing = event.t
            elif known is not None and known.ended is None:
                known.outcome, known.ended = facts["outcome"], event.t
                known.result = facts.get("result")
        return dict(found)

    @cached_property
    def requests(self) -> dict[str, list[Request]]:
        """The operations of the clients, by their names, in the order in which they were sent."""
        found: dict[str, list[Request]] = {name: [] for name in OPERATIONS}
        sent: dict[str, Request] = {}
        endings = {ending(name, how): how for name in OPERATIONS for how in ("done", "unknown", "refused")}
        for event in self.events:
            if event.what in OPERATIONS:
                request = Request(event.what, event.who, event.t, event.facts)
                found[event.what].append(request)
                sent[event.facts["op"]] = request
            elif event.what in endings and (request_of := sent.get(event.facts["op"])) is not None:
                request_of.how = endings[event.what]
                request_of.ended = event.t
                request_of.answer = event.facts
        return found

    @cached_property
    def asked(self) -> dict[str, set[str]]:
        """For each operation on a job, the jobs that it was sent for.

        Refused or not: a call that is repeated after a lost answer may be refused because of its own
        success.
        """
        return {
            name: {request.facts["job_id"] for request in requests if "job_id" in request.facts}
            for name, requests in self.requests.items()
        }

    def is_asked_for(self, name: str, change: JobChange) -> bool:
        """Whether the operation was sent for this job, or before the change for its topic or workflow."""
        workflow_id = self.audit.workflows.workflow_of(change.job_id)
        return change.job_id in self.asked[name] or any(
            self.clock.earliest(request.sent) <= change.at
            for name_of_all, subject, value in (
                (f"{name}_all", "topic", change.topic),
                (f"{name}_workflow", "workflow_id", workflow_id),
            )
            for request in self.requests.get(name_of_all, ())
            if request.facts[subject] == value
        )

    @cached_property
    def disturbances(self) -> Disturbances:
        return Disturbances(self.events)

    @cached_property
    def availability(self) -> Availability:
        return Availability(self)

    @cached_property
    def waits(self) -> list[Wait]:
        """When jobs waited for a worker."""
        return [wait for life in self.lives.values() for wait in waits_of(life)]

    @cached_property
    def submits_of(self) -> dict[str, list[Request]]:
        """The submits of each job that is in the audit."""
        by_id: defaultdict[str, list[Request]] = defaultdict(list)
        by_key: defaultdict[tuple[str, str], list[Request]] = defaultdict(list)
        for submit in self.requests["submit"]:
            by_key[submit.facts["topic"], submit.facts["key"]].append(submit)
            for job_id in {submit.facts.get("job_id"), submit.answer.get("job_id")}:
                if job_id is not None:
                    by_id[job_id].append(submit)
        found = {}
        for job_id, life in self.lives.items():
            keyed = by_key.get((life[0].change.topic, life[0].change.key or ""), [])
            submits = by_id.get(job_id, [])
            found[job_id] = [*submits, *(submit for submit in keyed if submit not in submits)]
        return found
