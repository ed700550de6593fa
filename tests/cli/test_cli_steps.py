"""Steps in the CLI: `jobs get` lists them, `jobs signal` sends signals, `jobs retry --fresh` forgets them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pulse as sdk
from pulse_text.jobs import what_a_step_did, what_it_waits_for
from tests.cli.command_line import CommandLine, until
from tests.rows import each_row

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASKS = """
from datetime import timedelta
import pulse

app = pulse.Pulse()

@app.job("approval")
async def approval(ctx: pulse.Context) -> None:
    await ctx.step("charge", lambda: "charge-7")
    decision = await ctx.wait_for("approved", timeout=timedelta(hours=2))
    raise pulse.Discard(f"by {decision['by']}")
"""


@contextmanager
def working(pulse: CommandLine, directory: Path) -> Iterator[subprocess.Popen[str]]:
    (directory / "tasks.py").write_text(TASKS)
    with pulse.process("worker", "tasks:app", cwd=directory) as worker:
        try:
            yield worker
        finally:
            worker.kill()
            worker.communicate()


def test_steps_are_listed_signals_sent_and_forgotten(pulse: CommandLine, tmp_path: Path) -> None:
    job_id = pulse("submit", "approval", "-o", "plain").out.strip()
    with working(pulse, tmp_path):
        until(pulse, ["jobs", "get", job_id], lambda job: job["waits_for"] == "approved")
        shown = pulse("jobs", "get", job_id).out
        assert "waits for approved" in shown
        assert "Steps" in shown
        assert "done in attempt 1" in shown
        assert "1 suspended" in shown
        sent = pulse("jobs", "signal", job_id, "approved", "--payload", '{"by": "Ann"}')
        assert sent.out == f"Sent approved to {job_id}.\n"
        until(pulse, ["jobs", "get", job_id], lambda job: job["status"] == "DEAD_LETTERED")
    found = pulse("jobs", "get", job_id, "-o", "json").json
    assert pulse("jobs", "get", job_id, "--watch", "-o", "json").json == found
    assert "signal came in attempt 1" in pulse("jobs", "get", job_id, "--watch").out
    assert "by Ann" in found["last_error"]
    assert [(step["name"], step["kind"], step["attempt"]) for step in found["step_list"]] == [
        ("charge", "step", 1),
        ("approved", "signal", 1),
    ]
    pulse("jobs", "retry", job_id)
    pulse("jobs", "cancel", job_id)
    assert pulse("jobs", "get", job_id, "-o", "json").json["steps"] == 2
    pulse("jobs", "retry", job_id, "--fresh")
    assert pulse("jobs", "get", job_id, "-o", "json").json["step_list"] == []


def test_signal_that_is_not_json_is_refused(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    job_id = stored(topic)
    refused = pulse("jobs", "signal", job_id, "approved", "--payload", "{")
    assert refused.code == 2
    assert "Not valid JSON" in refused.err
    nameless = pulse("jobs", "signal", job_id, "")
    assert (nameless.code, "name the signal" in nameless.err) == (2, True)
    pulse("jobs", "cancel", job_id)
    late = pulse("jobs", "signal", job_id, "approved")
    assert late.code == 1
    assert "only jobs that are not finished take signals" in late.err


def step(kind: str, stored: bool = True, until: datetime | None = None, **more: bool) -> sdk.StepInfo:
    at = NOW - HOUR
    return sdk.StepInfo(
        name="a",
        kind=sdk.StepKind(kind),
        attempt=1,
        started_at=at,
        stored_at=at if stored else None,
        until=until,
        **more,
    )


@each_row(
    "shown, words",
    [
        (step("step"), "done in attempt 1"),
        (step("sleep", until=NOW - HOUR), "slept in attempt 1"),
        (step("sleep", until=NOW + HOUR), "sleeps for 1h more"),
        (step("signal"), "signal came in attempt 1"),
        (step("signal", timed_out=True), "signal did not come in time, in attempt 1"),
        (step("signal", stored=False), "waits for the signal"),
        (step("signal", stored=False, until=NOW + HOUR), "waits for the signal, 1h at the most"),
    ],
)
def test_words_for_a_step(shown: sdk.StepInfo, words: str) -> None:
    assert what_a_step_did(shown, NOW) == words


@each_row(
    "signal, due, words",
    [
        ("", NOW + HOUR, "sleeps for 1h"),
        ("", NOW, "sleeps"),
        ("approved", None, "waits for approved"),
        ("approved", NOW + HOUR, "waits for approved, 1h at the most"),
    ],
)
def test_words_for_what_a_job_waits_for(signal: str, due: datetime | None, words: str) -> None:
    assert what_it_waits_for(signal, due, NOW) == words
