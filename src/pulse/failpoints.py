"""Failpoints: named places in the server and the SDK where a test can have this process die or stumble.

    @failpoints.before("jobs.inserting", Unavailable)
    @failpoints.after("jobs.inserted", Unavailable)
    async def insert_jobs(...): ...

    PULSE_FAILPOINTS="jobs.inserted=kill@3;claim.leased=delay:0.5@1/50" pulsed

An aid for the tests of pulse itself. A point that is not armed when this module is first imported
costs nothing: its decorator returns the given function unchanged. docs/figures.md#failpoints
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import logging
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar, cast

logger = logging.getLogger("pulse.failpoints")

Function = TypeVar("Function", bound=Callable[..., Any])
Raises = Callable[[str], Exception]

VARIABLE = "PULSE_FAILPOINTS"
SEED_VARIABLE = "PULSE_FAILPOINTS_SEED"

_SERVER = {
    "jobs.inserting": "before new jobs are stored",
    "jobs.inserted": "new jobs are stored; no wake-up and no answer is sent",
    "submit.answered": "jobs are stored and dispatch is woken; the answer has not left",
    "handover.storing": "before new jobs are stored as a waiting worker's own",
    "handover.stored": "new jobs are stored, some as a worker's own; none is on its way to it",
    "claim.leasing": "before jobs are claimed",
    "claim.leased": "jobs are claimed; none is on its way to its worker",
    "stream.writing": "before a message is written to a worker's stream; its welcome counts",
    "stream.written": "a message is written to a worker's stream; its welcome counts",
    "jobs.completing": "before successes are stored",
    "jobs.completed": "successes are stored; the worker is not answered",
    "jobs.failing": "before failures are stored",
    "jobs.failed": "failures are stored; the worker is not answered",
    "report.answered": "all results of a report are stored; the answer has not left",
    "leases.extending": "before leases are extended",
    "leases.extended": "leases are extended; the worker is not answered",
    "jobs.releasing": "before jobs are released",
    "jobs.released": "jobs are released; no wake-up is sent",
    "jobs.reaping": "before expired leases are reaped",
    "jobs.reaped": "expired leases are reaped; no worker is notified",
    "jobs.promoting": "before due jobs are looked for",
    "jobs.promoted": "due jobs are ready; no wake-up is sent",
    "jobs.cancelled": "jobs are canceled; their workers are not notified",
    "jobs.retried": "jobs are retried; no wake-up is sent",
    "jobs.forgotten": "finished jobs are deleted",
    "steps.storing": "before steps are stored",
    "steps.stored": "steps are stored; the worker is not answered",
    "steps.listing": "before the steps of a job are read",
    "jobs.suspending": "before jobs are suspended",
    "jobs.suspended": "jobs are suspended; no wake-up is sent and the worker is not answered",
    "signals.sending": "before a signal is stored",
    "signals.sent": "a signal is stored; no wake-up is sent and the sender is not answered",
    "signals.taking": "before a signal is taken",
    "signals.taken": "a signal is taken as a step; the worker is not answered",
    "schedules.firing": "before the steps of due schedules are taken",
    "schedules.fired": "occurrences have their jobs and cursors are moved; no wake-up is sent",
    "switch.turning": "before dispatch is paused or resumed",
    "switch.turned": "dispatch is paused or resumed in the database; no server has heard of it",
    "limits.setting": "before limits that an operator sets or a worker declares are stored",
    "limits.set": "such limits are stored; they are not in force",
    "limits.enforcing": "before limits are put in force, or end",
    "limits.enforced": "limits are in force in the database, or have ended; no server has heard of it",
    "gate.reading": "before the pause switches are read; at the start, too",
    "migration.applying": "before a migration",
    "migration.recording": "a migration's statements ran; it is neither recorded nor committed",
    "migration.applied": "a migration is committed",
    "wakeup.sending": "a wake-up was taken from the outbox; it has not left",
}
# No errors here: what keeps a worker from its server is the network's doing, or the server's answer.
_SDK = {
    "client.submitting": "before jobs are sent",
    "client.submitted": "the server has answered for jobs; their callers do not know",
    "worker.received": "assignments have arrived; none is held",
    "worker.confirming": "before a delivery is confirmed",
    "worker.starting": "before a handler is called; a delay blocks the event loop",
    "worker.reporting": "handlers are done; their results have not left",
    "worker.reported": "the server has answered a report",
    "worker.beating": "before a heartbeat, in its thread",
    "worker.returning": "before jobs that have not started are released, in the heartbeat thread",
    "worker.releasing": "before a worker that stops gives jobs back, if it has any",
}

_ENTRY = (
    r"(?P<name>[a-z.]+)=(?P<action>kill|stop|error|delay:(?P<seconds>\d+(\.\d+)?))"
    r"(@((?P<nth>[1-9]\d*)|1/(?P<one_in>[1-9]\d*)))?"
)


class BadFailpoints(ValueError):
    """The variable cannot be read, or names a point that there is not. The text is a sentence."""


@dataclass(frozen=True, slots=True)
class Armed:
    """The action at a point, and its trigger: the nth pass, one in n by chance, or each pass."""

    name: str
    text: str
    action: str
    seconds: float
    nth: int
    one_in: int
    chance: Random
    passes: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def is_due(self) -> bool:
        """Count a pass. Returns whether something happens at it."""
        number = next(self.passes)
        if self.nth:
            return number == self.nth
        return not self.one_in or self.chance.randrange(self.one_in) == 0

    def act(self, raises: Raises | None) -> float:
        """Carry out the action on this process. Returns how many seconds to wait."""
        if self.action == "delay":
            return self.seconds
        logger.warning("failpoint_hit: %s", self.text, extra={"failpoint": self.name, "action": self.action})
        if self.action == "error" and raises is not None:
            raise raises(f"The failpoint {self.name} says so. Try again.")
        os.kill(os.getpid(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)
        return 0.0


def names() -> dict[str, str]:
    """Every point there is, with a line about where it stands."""
    return _SERVER | _SDK


def armed() -> list[str]:
    """The points that are armed in this process, as they were written."""
    return [point.text for point in _armed.values()]


def read(text: str, seed: str = "") -> dict[str, Armed]:
    """Read a list such as `jobs.inserted=kill@3;worker.beating=delay:2@1/10`. Raises BadFailpoints.

    With the same seed the same passes are chosen. Without one they differ from run to run.
    """
    points: dict[str, Armed] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        match = re.fullmatch(_ENTRY, entry)
        if match is None:
            raise BadFailpoints(
                f"{VARIABLE} has {entry!r}: write NAME=ACTION or NAME=ACTION@WHEN, several with ; between "
                "them. ACTION is kill, stop, error or delay:SECONDS, WHEN is N for the Nth pass or 1/N for "
                "one pass in N by chance."
            )
        name = match["name"]
        if name not in names():
            from difflib import get_close_matches  # imported here: only this message needs it

            close = get_close_matches(name, names(), n=1)
            meant = f"Did you mean {close[0]}?" if close else "pulse.failpoints.names() has those there are."
            raise BadFailpoints(f"{VARIABLE} has {entry!r}: there is no failpoint {name}. {meant}")
        if name in _SDK and match["action"] == "error":
            raise BadFailpoints(
                f"{VARIABLE} has {entry!r}: no error can be raised there, only kill, stop or delay."
            )
        if name in points:
            raise BadFailpoints(f"{VARIABLE} has {name} twice: one action is possible at each point.")
        points[name] = Armed(
            name,
            entry,
            match["action"].partition(":")[0],
            float(match["seconds"] or 0),
            int(match["nth"] or 0),
            int(match["one_in"] or 0),
            Random(f"{seed} {name}" if seed else None),
        )
    return points


_armed = read(os.environ.get(VARIABLE, ""), os.environ.get(SEED_VARIABLE, ""))


def before(name: str, raises: Raises | None = None) -> Callable[[Function], Function]:
    """Have a point before each call of the function. `raises` makes the error that its callers know."""
    return functools.partial(_placed, name, raises, None)


def after(
    name: str, raises: Raises | None = None, *, counts: Callable[[Any], object] = lambda result: True
) -> Callable[[Function], Function]:
    """Have a point after each call that returned something which `counts`."""
    return functools.partial(_placed, name, raises, counts)


def _placed(
    name: str, raises: Raises | None, counts: Callable[[Any], object] | None, function: Function
) -> Function:
    assert name in (_SDK if raises is None else _SERVER), f"{name} is not listed as it is used"
    point = _armed.get(name)
    if point is None:
        return function
    if inspect.iscoroutinefunction(function):
        return cast(Function, _awaited(point, raises, counts, function))
    return cast(Function, _called(point, raises, counts, function))


def _awaited(
    point: Armed, raises: Raises | None, counts: Callable[[Any], object] | None, function: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **keywords: Any) -> Any:
        if counts is None and point.is_due():
            await asyncio.sleep(point.act(raises))
        result = await function(*args, **keywords)
        if counts is not None and counts(result) and point.is_due():
            await asyncio.sleep(point.act(raises))
        return result

    return call


def _called(
    point: Armed, raises: Raises | None, counts: Callable[[Any], object] | None, function: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if counts is None and point.is_due():
            time.sleep(point.act(raises))
        result = function(*args, **keywords)
        if counts is not None and counts(result) and point.is_due():
            time.sleep(point.act(raises))
        return result

    return call
