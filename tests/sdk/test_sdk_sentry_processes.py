"""Events of Sentry: those of handlers in child processes, and of one that blocks the event loop for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.sdk.sentry_facts import deliver, facts


class Application:
    """A worker process that uses Sentry. Its events can be read once its processes have sent them."""

    def __init__(self, fake: FakePulsed, events: Path) -> None:
        self._events = events
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("sentry_app.py"))],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "ADDRESS": fake.address,
                "EVENTS": str(events),
            },
        )

    def events(self) -> list[Any]:
        return [json.loads(line) for line in self._events.read_text().splitlines()]


@pytest.fixture
def app(fake: FakePulsed, tmp_path: Path) -> Iterator[Application]:
    application = Application(fake, tmp_path / "events")
    yield application
    application.process.kill()
    application.process.wait()


def test_what_a_handler_sets_in_a_process_is_on_the_event_of_its_attempt_alone(
    fake: FakePulsed, app: Application
) -> None:
    jobs = [
        (f"{topic} {tenant}", topic, tenant)
        for topic in ("process", "process-async")
        for tenant in ("ada", "")
    ]
    for number, job in enumerate(jobs, 1):
        deliver(fake, *job)  # one at a time: the worker has one slot, and its first process takes long
        fake.until(lambda number=number: len(fake.results) == number)
    app.process.terminate()
    assert app.process.wait(PATIENCE_SECONDS) == 0
    events = app.events()
    assert len({event["exception"]["values"][-1]["value"] for event in events}) == 1  # one process
    ring = {"release-ring": "blue"}
    assert {event["extra"]["pulse_job_id"]: facts(event) for event in events} == {
        job_id: ({**ring, "tenant": tenant}, {"id": tenant}, [f"began {tenant}"])
        if tenant
        else (ring, None, [])
        for job_id, _, tenant in jobs
    }


def test_event_of_a_process_is_sent_before_it_is_killed_at_its_limit(
    fake: FakePulsed, app: Application
) -> None:
    deliver(fake, "j1", "hang", "ada")
    fake.until(lambda: "j1" in fake.results)
    (event,) = app.events()
    assert event["exception"]["values"][-1]["type"] == "TimedOut"
    assert event["tags"] == {"release-ring": "blue", "tenant": "ada"}


def test_event_of_a_handler_that_blocks_the_event_loop_is_sent_before_the_process_ends(
    fake: FakePulsed, app: Application
) -> None:
    deliver(fake, "j1", "block", "ada")
    assert app.process.wait(PATIENCE_SECONDS) == os.EX_SOFTWARE
    (event,) = (event for event in app.events() if "exception" in event)
    assert event["exception"]["values"][-1]["type"] == "TimedOut"
    assert event["tags"] == {"release-ring": "blue", "tenant": "ada"}
