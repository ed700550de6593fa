"""A workflow of a made-up run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from faults.changes import OutcomeChange
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.workflows.model import DROPPED, READY, SKIPPED, WAITING, count, outcome_of
from faults.workflows.tables import Edge, WorkflowJobRow, WorkflowRow, WorkflowTables

Parents = Mapping[str, Sequence[str]]


class MadeUpWorkflow:
    """Jobs by their names, each with the names of its parents. A dropped or skipped job stays held."""

    def __init__(self, run: MadeUpRun, parents: Parents, conditions: Mapping[str, str] | None = None) -> None:
        self.id = str(UUID(int=run.number()))
        self.parents = {name: list(names) for name, names in parents.items()}
        self.conditions = dict(conditions or {})
        self.jobs = {name: MadeUpJob(run, name) for name in parents}
        self._run = run
        self._skipped: set[str] = set()
        self._counted: dict[str, str | None] = {}
        self._canceled = False

    def submit(self, how: str | None = "done", *, without: Sequence[str] = ()) -> MadeUpWorkflow:
        """Send it, store its jobs in one transaction (but those that are named), and answer."""
        run = self._run
        op = run.send("workflow", workflow_id=self.id, keys=list(self.jobs))
        txid = run.number()
        for name, job in self.jobs.items():
            job.send()
            if name not in without:
                self._insert(name, txid)
                job.answer(how)
        run.answer("workflow", op, how, workflow_id=self.id)
        return self

    def add(self, by: str, parents: Parents, *, txid: int | None = None) -> None:
        """Let a running job add jobs. Those that are there already are left out."""
        run, adder = self._run, self.jobs[by]
        op = run.send("add", job_id=adder.id, run=adder.now.run, keys=list(parents))
        txid = txid or run.number()
        for name, names in parents.items():
            job = self.jobs.setdefault(name, MadeUpJob(run, name)).send()
            if name not in self.parents:
                self.parents[name] = list(names)
                self._insert(name, txid)
            job.answer()
        run.answer("add", op, job_id=adder.id)

    def settle(self) -> None:
        """Count the ends of jobs."""
        for name, job in self.jobs.items():
            outcome = outcome_of(job.now.status, self._state(name))
            if self._counted.get(name) != outcome:
                self._counted[name] = outcome
                self.count(name, outcome)

    def count(self, name: str, outcome: str | None) -> None:
        """Count an outcome of a job, right or wrong."""
        run = self._run
        run.outcomes.append(OutcomeChange(run.number(), run.at, run.at, self.jobs[name].id, outcome))
        run.wait()

    def ready(self, name: str) -> MadeUpJob:
        self.settle()
        return self.jobs[name].become(held=False, ready=True)

    def drop(self, name: str) -> MadeUpJob:
        return self.jobs[name].become(status="CANCELED")

    def skip(self, name: str) -> MadeUpJob:
        self._skipped.add(name)
        return self.drop(name)

    def bring_back(self, name: str) -> MadeUpJob:
        self._skipped.discard(name)
        return self.jobs[name].become(status="PENDING")

    def cancel(self, how: str = "done") -> None:
        """Cancel it as a whole: its jobs are not touched here."""
        op = self._run.send("cancel_workflow", workflow_id=self.id)
        self._canceled = True
        self._run.answer("cancel_workflow", op, how)

    def redrive(self) -> None:
        op = self._run.send("redrive_workflow", workflow_id=self.id)
        self._canceled = False
        self._run.answer("redrive_workflow", op)

    def store_tables(self) -> None:
        """Leave the tables as they have to be at the end."""
        outcomes = {name: outcome_of(job.now.status, self._state(name)) for name, job in self.jobs.items()}
        numbers = {name: number for number, name in enumerate(self.jobs, 1)}
        rows = [
            WorkflowJobRow(
                job.id,
                self.id,
                numbers[name],
                name,
                self.conditions.get(name, "succeeded"),
                self._state(name),
                outcomes[name],
                count(outcomes[parent] for parent in self.parents[name]),
                job.now.status,
            )
            for name, job in self.jobs.items()
        ]
        edges = [
            Edge(self.id, numbers[parent], numbers[name])
            for name, parents in self.parents.items()
            for parent in parents
        ]
        ended = [
            list(outcomes.values()).count(outcome)
            for outcome in (None, "succeeded", "failed", "canceled", "skipped")
        ]
        row = WorkflowRow(self.id, len(rows), *ended, ended[0] == 0, self._canceled)
        self._run.workflows = WorkflowTables([row], rows, edges)

    def _insert(self, name: str, txid: int) -> None:
        is_held = bool(self.parents[name])
        self.jobs[name].insert(ready=not is_held, held=is_held, txid=txid)

    def _state(self, name: str) -> str:
        state = self.jobs[name].now
        if not state.held:
            return READY
        return WAITING if state.status != "CANCELED" else SKIPPED if name in self._skipped else DROPPED
