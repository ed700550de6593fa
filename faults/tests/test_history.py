"""Recorded events survive the death of the process that wrote them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faults.clock import Clock
from faults.history import EXPECTATIONS, Event, History, read

_DOOMED = """
import os, signal, sys
from pathlib import Path
from faults.history import History
history = History(Path(sys.argv[1]), "worker-1")
for run in range(1, 501):
    history.write("started", job_id="j", attempt=1, run=run, worker="worker-1", topic="mail")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_events_come_back_in_the_order_of_time(tmp_path: Path) -> None:
    with History(tmp_path, "client") as client, History(tmp_path, "worker-1") as worker:
        submit = client.operation("submit", key="k", topic="mail", expect="complete")
        worker.write("started", job_id="j", attempt=1, run=1, worker="w", topic="mail")
        submit.done(job_id="j")
        worker.write("ended", job_id="j", attempt=1, run=1, worker="w", outcome="completed")
    events = read(tmp_path)
    assert [event.what for event in events] == ["submit", "started", "submitted", "ended"]
    assert [event.who for event in events] == ["client", "worker-1", "client", "worker-1"]
    assert events == sorted(events, key=lambda event: event.t)
    assert events[1].facts == {"job_id": "j", "attempt": 1, "run": 1, "worker": "w", "topic": "mail"}


def test_answer_is_tied_to_its_operation(tmp_path: Path) -> None:
    with History(tmp_path, "client") as history:
        operations = [history.operation("cancel", job_id="j") for _ in range(3)]
        operations[1].refused("it is COMPLETED")
        operations[0].done()
        operations[2].unknown("the line was cut")
    events = {event.what: event.facts for event in read(tmp_path)[3:]}
    assert events["cancel_refused"]["op"] == operations[1].op
    assert events["cancel_done"] == {"op": operations[0].op, "job_id": "j"}
    assert events["cancel_unknown"]["reason"] == "the line was cut"
    assert len({operation.op for operation in operations}) == 3


def test_killed_process_leaves_all_it_wrote(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    died = subprocess.run(
        [sys.executable, "-c", _DOOMED, str(tmp_path)], env=environment, timeout=50, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert [event.facts["run"] for event in read(tmp_path)] == list(range(1, 501))


def test_half_a_line_at_the_end_is_left_out(tmp_path: Path) -> None:
    with History(tmp_path, "worker-1") as history:
        history.write("note", text="whole")
    with history.path.open("ab") as file:
        file.write(json.dumps({"t": 1, "who": "worker-1", "what": "note", "text": "half"}).encode())
    assert [event.facts["text"] for event in read(tmp_path)] == ["whole"]


@pytest.mark.parametrize(
    ("what", "facts"),
    [
        ("begun", {}),
        ("started", {"job_id": "j", "attempt": 1, "run": 1, "worker": "w"}),
        ("started", {"job_id": "j", "attempt": 1, "worker": "w", "topic": "mail"}),
        ("submit", {"key": "k", "topic": "mail", "expect": "complete"}),
        ("submitted", {"op": "1", "key": "k"}),
        ("submit", {"op": "1", "key": "k", "topic": "mail", "expect": "perfect"}),
    ],
)
def test_event_that_no_rule_would_understand_is_refused(
    tmp_path: Path, what: str, facts: dict[str, object]
) -> None:
    with History(tmp_path, "client") as history, pytest.raises(ValueError, match=r"\.$"):
        history.write(what, **facts)
    assert read(tmp_path) == []


def test_expectations_name_terminal_states() -> None:
    assert set(EXPECTATIONS.values()) == {"COMPLETED", "DEAD_LETTERED", ""}


# ---------------------------------------------------------------- the clock


def _reading(database_us: int, sent_us: int, received_us: int) -> Event:
    facts = {"database_ns": database_us * 1000, "sent_ns": sent_us * 1000, "received_ns": received_us * 1000}
    return Event(received_us * 1000, "run", "clock", facts)


def test_readings_of_the_clock_narrow_each_other() -> None:
    clock = Clock.of([_reading(1_000_100, 50, 150), _reading(1_000_300, 280, 420)])
    assert clock.earliest(1_000_000) == 1_000_000 - 50 + 1000
    assert clock.latest(1_000_000) == 1_000_000 + 20 + 1000
    assert clock.earliest(1_000_000) <= clock.about(1_001_000) // 1000 + 1_000_000 <= clock.latest(1_000_000)


def test_clock_that_was_set_meanwhile_is_known_less_well() -> None:
    clock = Clock.of([_reading(1_000_100, 50, 150), _reading(2_000_300, 280, 420)])
    assert clock.earliest(0) == 1_000_100 - 150
    assert clock.latest(0) == 2_000_300 - 280


def test_history_without_a_reading_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="no reading"):
        Clock.of([])
