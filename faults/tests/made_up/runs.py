"""Histories and audits written by hand, as a correct system would leave them.

A test writes the life of a job, breaks something in it, and expects the checker to find it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faults.audit import Audit
from faults.bank import ACCOUNTS, BALANCE, Ledger, Transfer, Wish, movement_of
from faults.changes import (
    JobChange,
    LateWait,
    LimitEvent,
    OutcomeChange,
    ScheduleChange,
    SwitchChange,
    WorkflowChange,
)
from faults.evidence import Evidence
from faults.history import FREEZE, Event, ending, in_order
from faults.workflows.tables import WorkflowTables

STEP = 10_000
# The clocks at the beginning: the history's in nanoseconds, the database's in microseconds.
_BEGIN = 5_000_000_000
AHEAD = 1_800_000_000_000_000 - _BEGIN // 1000


@dataclass
class MadeUpRun:
    """Keeps the time, and collects events and changes. Each happens 10 ms after the one before it."""

    events: list[Event] = field(default_factory=list)
    changes: list[JobChange] = field(default_factory=list)
    switches: list[SwitchChange] = field(default_factory=list)
    schedules: list[ScheduleChange] = field(default_factory=list)
    limits: list[LimitEvent] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    late_waits: list[LateWait] = field(default_factory=list)
    wishes: list[Wish] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    workflows: WorkflowTables = field(default_factory=WorkflowTables)
    outcomes: list[OutcomeChange] = field(default_factory=list)
    cancels: list[WorkflowChange] = field(default_factory=list)
    t: int = _BEGIN
    _numbers: int = 0

    def __post_init__(self) -> None:
        reading = {"database_ns": self.at * 1000, "sent_ns": self.t - 50_000, "received_ns": self.t + 50_000}
        self.write("run", "clock", **reading)

    @property
    def at(self) -> int:
        """The database's time."""
        return self.t // 1000 + AHEAD

    def wait(self, microseconds: int = STEP) -> None:
        self.t += microseconds * 1000

    def wait_until(self, at: int) -> None:
        self.wait(max(STEP, at - self.at))

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def write(self, who: str, what: str, **facts: Any) -> Event:
        event = Event(self.t, who, what, facts)
        self.events.append(event)
        self.wait()
        return event

    def send(self, name: str, **facts: Any) -> str:
        """Record that an operation was sent. Returns its op."""
        op = f"op-{self.number()}"
        self.write("client", name, op=op, **facts)
        return op

    def answer(self, name: str, op: str, how: str | None = "done", **facts: Any) -> None:
        """Record its outcome. None: there was no answer."""
        if how is not None:
            self.write("client", ending(name, how), op=op, **facts)

    def freeze(self, process: str) -> None:
        self.write("nemesis", "fault", kind=FREEZE, target=process)

    def thaw(self, process: str) -> None:
        self.write("nemesis", "healed", kind=FREEZE, target=process)

    def switch(self, topic: str, paused: bool) -> None:
        self.switches.append(SwitchChange(self.number(), self.number(), self.at, self.at, topic, paused))
        self.wait()

    def pause(self, topic: str = "", how: str | None = "done", *, is_stored: bool = True) -> None:
        op = self.send("pause", topic=topic)
        if is_stored:
            self.switch(topic, paused=True)
        self.answer("pause", op, how, topic=topic)

    def resume(self, topic: str = "") -> None:
        self.switch(topic, paused=False)

    def cancel_workflow(self, workflow_id: str, *, is_canceled: bool = True, txid: int | None = None) -> None:
        """Store that the workflow was canceled, or brought back."""
        change = (self.number(), txid or self.number(), self.at, self.at, workflow_id, is_canceled)
        self.cancels.append(WorkflowChange(*change))
        self.wait()

    def end_wait(self, job_id: str, attempt: int) -> None:
        """Store that the signal did not come in time."""
        self.late_waits.append(LateWait(self.number(), self.number(), self.at, self.at, job_id, attempt))
        self.wait()

    def wish(self, key: str, job_id: str) -> None:
        """Commit a wish."""
        self.wishes.append(Wish(key, job_id, movement_of(key)))
        self.wait()

    def transfer(self, key: str, job_id: str, run: int, worker: str) -> None:
        """Move the money of a wish."""
        self.transfers.append(Transfer(key, job_id, run, worker))
        self.wait()

    def ledger(self) -> Ledger:
        balances = dict.fromkeys(range(ACCOUNTS), BALANCE)
        for transfer in self.transfers:
            origin, target, amount = movement_of(transfer.key)
            balances[origin] -= amount
            balances[target] += amount
        return Ledger(list(self.wishes), list(self.transfers), balances)

    def evidence(self) -> Evidence:
        statuses: dict[str, str] = {}
        for change in self.changes:
            if change.new is None:
                statuses.pop(change.job_id, None)
            else:
                statuses[change.job_id] = change.new.status
        lists = (list(self.changes), list(self.switches), list(self.schedules))
        rest = (
            list(self.limits),
            dict(self.results),
            list(self.late_waits),
            self.workflows,
            self.outcomes,
            self.cancels,
        )
        audit = Audit(*lists, statuses, *rest)
        return Evidence(in_order(self.events), audit, self.ledger())
