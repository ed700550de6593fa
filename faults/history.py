"""What the processes of a run did and observed, as an append-only log of events.

Each process writes a file of its own into one directory, a JSON object per line: {"t", "who", "what", …}.
`t` is time.monotonic_ns(), which all processes of a machine share and no shift of a host's clock touches.

An operation of a client is two events. The first records that it was sent; the second its outcome:

    submit  {op, key, topic, expect}        -> submitted | submit_unknown | submit_refused
    cancel, redrive, … {op, job_id}         -> cancel_done | cancel_unknown | cancel_refused

`unknown` covers every error after which the server may have done it; `refused` only what it certainly did
not do. An operation without a second event (its client was killed) is unknown too. `key` names the job of a
submit: it is the job's idempotency key, or stands in its payload, a JSON object, as the field "key" (the
first one, so that the audit finds it), or the submit records the job_id that the client made.

An operation on many jobs (cancel_all, …) names their topic instead of a job, or their workflow.

Workers write `started` and `ended`, from inside the handler. A crash leaves no `ended`. A handler that
reports progress records with `started` what it found of it; one that returns something records that with
`ended`. A process that got no time to run writes how
long it `stalled`. Handlers of steps write what their steps do. A handler writes `completing` before
it calls ctx.complete, and `claim_lost` if that was refused. The nemesis writes `fault` and `healed`.
FREEZE is the kind that stops a process (SIGSTOP) until it is healed; the target of a fault is the name
under which that process writes. It also writes when a process `began`, when it is about to be ended
(`ending`) and that it is `gone`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FREEZE = "freeze"  # the kind of a fault that stops a process; healed once it goes on

# Operations and the fields of each when it is sent. A pause or resume of everything has the topic "".
OPERATIONS: dict[str, frozenset[str]] = {
    "submit": frozenset({"key", "topic", "expect"}),
    "cancel": frozenset({"job_id"}),
    "redrive": frozenset({"job_id"}),
    "delete": frozenset({"job_id"}),
    "prioritize": frozenset({"job_id"}),
    "signal": frozenset({"job_id", "value"}),
    "await": frozenset({"job_id"}),  # its answer has the status, and the result of a completed job
    "cancel_all": frozenset({"topic"}),
    "redrive_all": frozenset({"topic"}),
    "delete_all": frozenset({"topic"}),
    "prioritize_all": frozenset({"topic"}),
    "workflow": frozenset({"workflow_id", "keys"}),  # a submit: each of its jobs is a submit of its own, too
    "add": frozenset({"job_id", "run", "keys"}),  # to the workflow of a running job, likewise
    "cancel_workflow": frozenset({"workflow_id"}),
    "redrive_workflow": frozenset({"workflow_id"}),
    "settings": frozenset({"topic"}),
    "limits": frozenset({"topic"}),
    "lane": frozenset({"topic", "lane"}),
    "hold": frozenset({"topic"}),
    "declare": frozenset({"topic"}),
    "pause": frozenset({"topic"}),
    "resume": frozenset({"topic"}),
    "schedule_create": frozenset({"name"}),
    "schedule_edit": frozenset({"schedule_id"}),
    "schedule_pause": frozenset({"schedule_id"}),
    "schedule_resume": frozenset({"schedule_id"}),
    "schedule_delete": frozenset({"schedule_id"}),
    "schedule_fire": frozenset({"schedule_id", "job_id"}),
}
# All other events, and their fields.
OBSERVATIONS: dict[str, frozenset[str]] = {
    "started": frozenset({"job_id", "attempt", "run", "worker", "topic"}),
    "ended": frozenset({"job_id", "attempt", "run", "worker", "outcome"}),
    "step_ran": frozenset({"job_id", "run", "worker", "step"}),  # from inside the step
    "step_stored": frozenset({"job_id", "run", "step"}),  # the handler went on
    "signal_taken": frozenset({"job_id", "run", "step", "value"}),  # value None: it did not come in time
    "completing": frozenset({"job_id", "run", "worker"}),  # the handler is about to call ctx.complete
    "claim_lost": frozenset({"job_id", "run", "worker"}),  # ctx.complete was refused
    "fault": frozenset({"kind", "target"}),
    "healed": frozenset({"kind", "target"}),
    "began": frozenset({"target"}),  # of a worker also: worker_id, replica, concurrency
    "led": frozenset({"target", "replica"}),  # a worker connects to this server from now on
    "ending": frozenset({"target"}),
    "gone": frozenset({"target"}),
    "stalled": frozenset({"seconds"}),
    "clock": frozenset({"database_ns", "sent_ns", "received_ns"}),  # audit.record_clock writes it
    "settled": frozenset(),  # the run: everything is healed, all jobs are finished, the servers are still up
    "stranded": frozenset({"topic", "lane"}),  # a lane with work and room that nothing would have served
    "repaired": frozenset({"pools", "lanes"}),  # by a sweep, which finds nothing unless there is a bug
    # A workflow without notices whose tables do not agree: see workflows/tables.py.
    "out_of_step": frozenset({"rule", "text", "job_id"}),
    "note": frozenset({"text"}),  # for the reader of a story; no rule looks at it
}
# What a handler does with its job, and so how the job ends if no operator interferes.
EXPECTATIONS: dict[str, str] = {
    "complete": "COMPLETED",
    "fail_once": "COMPLETED",
    "retry_once": "COMPLETED",
    "snooze_once": "COMPLETED",
    "snooze_twice": "COMPLETED",
    "flaky": "COMPLETED",
    "block": "COMPLETED",
    "steps": "COMPLETED",
    "transfer": "COMPLETED",
    "add": "COMPLETED",
    "discard": "DEAD_LETTERED",
    "fail": "DEAD_LETTERED",
    "any": "",
}
# Outcomes of `ended`: the handler did what it should, or it was stopped. Other outcomes are for the reader.
COMPLETED = "completed"
CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    t: int
    who: str
    what: str
    facts: dict[str, Any] = field(default_factory=dict)


def ending(operation: str, how: str) -> str:
    """The name of an operation's second event; `how` is done, unknown or refused."""
    return "submitted" if (operation, how) == ("submit", "done") else f"{operation}_{how}"


_ENDINGS = frozenset(ending(name, how) for name in OPERATIONS for how in ("done", "unknown", "refused"))


class History:
    """Appends the events of one process. Once `write` has returned, the event survives a kill."""

    def __init__(self, directory: Path, who: str) -> None:
        self.who = who
        # The last line of a dead process of this name may be incomplete: start a new line.
        self.path = directory / f"{who}.{os.getpid()}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._operations = count(1)

    def write(self, what: str, **facts: Any) -> Event:
        """Append an event with the present time. One write each: threads and a SIGKILL leave lines whole."""
        _check(what, facts)
        event = Event(time.monotonic_ns(), self.who, what, facts)
        line = {"t": event.t, "who": event.who, "what": what, **facts}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return event

    def operation(self, name: str, /, **facts: Any) -> Operation:
        """Record that the operation is about to be sent. Call one method of the result with its outcome."""
        op = f"{self.who}.{os.getpid()}.{next(self._operations)}"
        self.write(name, op=op, **facts)
        return Operation(self, name, op, facts)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that was sent. Call exactly one of its methods; without a call it is unknown."""

    history: History
    name: str
    op: str
    facts: dict[str, Any]

    def done(self, **facts: Any) -> None:
        """The server acknowledged it. Of a submit: `job_id`."""
        self._end("done", facts)

    def unknown(self, reason: str) -> None:
        """It ended with an error after which it may have happened, or may still happen."""
        self._end("unknown", {"reason": reason})

    def refused(self, reason: str) -> None:
        """The server refused it and changed nothing."""
        self._end("refused", {"reason": reason})

    def _end(self, how: str, facts: dict[str, Any]) -> None:
        said = {name: value for name, value in self.facts.items() if name in _REPEATED}
        self.history.write(ending(self.name, how), op=self.op, **(said | facts))


# Fields that the second event repeats, so that a single line can be understood.
_REPEATED = frozenset({"key", "topic", "job_id", "schedule_id", "name"})


def _check(what: str, facts: dict[str, Any]) -> None:
    """Refuse an unknown event: a misspelled one would be a fact that no rule sees."""
    if what in _ENDINGS:
        required = frozenset({"op", "job_id"} if what == "submitted" else {"op"})
    else:
        known = OPERATIONS | OBSERVATIONS
        if what not in known:
            raise ValueError(f"{what!r} is no event of the history; see OPERATIONS and OBSERVATIONS.")
        required = known[what] | ({"op"} if what in OPERATIONS else set())
    if missing := required - facts.keys():
        raise ValueError(f"{what} lacks {', '.join(sorted(missing))}.")
    if "expect" in facts and facts["expect"] not in EXPECTATIONS:
        raise ValueError(f"{facts['expect']!r} is none of {', '.join(EXPECTATIONS)}.")


def read(directory: Path) -> list[Event]:
    """Return the events of all processes, in the order of their times."""
    events: list[Event] = []
    for path in sorted(directory.glob("*.jsonl")):
        with path.open("rb") as file:
            # The last line of a process may be incomplete.
            events.extend(parse(line) for line in file if line.endswith(b"\n"))
    return in_order(events)


def parse(line: bytes) -> Event:
    facts = json.loads(line)
    return Event(facts.pop("t"), facts.pop("who"), facts.pop("what"), facts)


def in_order(events: Iterable[Event]) -> list[Event]:
    """By time; what one process wrote within the same nanosecond stays in its order."""
    return sorted(events, key=lambda event: event.t)
