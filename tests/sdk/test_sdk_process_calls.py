"""An attempt in a child process that is interrupted before it has begun, or while its result arrives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulse.outcomes import Cancelled, TimedOut
from pulse.worker.held_jobs import TimeLimit
from pulse.worker.processes import Done
from pulse.worker.runners import ProcessCall


class Child:
    """A process that returns at once, and what is sent to it besides."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def topics(self) -> set[str]:
        return {"work"}

    def run(self, attempt: Any, progressed: Any) -> Done:
        self.received.append("run")
        return Done(result=b"1")

    def stop(self, limit_seconds: float, is_timed_out: bool) -> None:
        self.received.append("stop")

    def kill(self) -> None:
        self.received.append("kill")


def checked(child: Child) -> dict[str, Any]:
    return {"wait_for_check": lambda _: True, "take": lambda: child, "attempt": lambda _: None}


def test_limit_that_passes_when_the_process_has_the_next_attempt_does_not_end_that_one() -> None:
    child = Child()

    def give_back(given: Child) -> None:
        call.interrupt(TimedOut)
        call.kill()

    processes: Any = SimpleNamespace(**checked(child), give_back=give_back)
    job: Any = SimpleNamespace(limit=TimeLimit(0.3, 0.0, None, True), context=SimpleNamespace())
    call = ProcessCall(processes, job, loaded=lambda: None)

    assert call.run() == b"1"
    assert child.received == ["run"]


def test_attempt_that_is_interrupted_while_its_process_imports_does_not_run() -> None:
    child = Child()
    dropped: list[Child] = []
    processes: Any = SimpleNamespace(**checked(child), drop=dropped.append)
    job: Any = SimpleNamespace(limit=TimeLimit(0.0, 0.0, None), context=SimpleNamespace())
    call = ProcessCall(processes, job, loaded=lambda: call.interrupt(Cancelled))

    with pytest.raises(Cancelled):
        call.run()
    assert child.received == ["stop"]
    assert dropped == [child]
