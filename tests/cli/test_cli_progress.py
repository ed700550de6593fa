"""Progress in `pulse jobs get`, with and without --watch, and in `pulse top`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pulse as sdk
from pulse_cli.terminal import line_width
from pulse_cli.top import Snapshot, frame
from pulse_cli.workers import describe_held
from pulse_text.jobs import percent, rest, summary
from tests.cli.command_line import CommandLine, ended, until
from tests.rows import each_row

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
TASKS = """
import asyncio
from pathlib import Path
import pulse

app = pulse.Pulse()

@app.job("copy")
async def copy(ctx: pulse.Context, file: str) -> None:
    ctx.progress(0.4, "20 of 50 files", cursor={"file": 20})
    while not Path(file).exists():
        await asyncio.sleep(0.05)
"""


@contextmanager
def copying(pulse: CommandLine, directory: Path) -> Iterator[subprocess.Popen[str]]:
    (directory / "tasks.py").write_text(TASKS)
    with pulse.process("worker", "tasks:app", cwd=directory) as worker:
        try:
            yield worker
        finally:
            worker.kill()
            worker.communicate()


def held_progress(workers: list[Any], job_id: str) -> list[Any]:
    jobs = (job for worker in workers for job in worker["held"] if job["id"] == job_id)
    return [job["progress"] for job in jobs if job["progress"] is not None]


def test_progress_of_a_running_job_is_shown_until_it_has_finished(pulse: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "go"
    job_id = pulse("submit", "copy", "--payload", json.dumps({"file": str(file)}), "-o", "plain").out.strip()
    get = ["jobs", "get", job_id]
    with (
        pulse.terminal(*get, "--watch", columns=120) as child,
        pulse.process(*get, "--watch", "-o", "json") as piped,
        ExitStack() as later,
    ):
        child.expect("PENDING")
        assert piped.stdout is not None
        first = piped.stdout.readline()
        later.enter_context(copying(pulse, tmp_path))
        child.expect("40%, 20 of 50 files")
        shown = pulse(*get).out
        assert "40% done" in shown
        assert '{"file": 20}' in shown
        until(pulse, ["workers"], lambda workers: held_progress(workers, job_id))
        (held,) = held_progress(pulse("workers", "-o", "json").json, job_id)
        assert (held["fraction"], held["cursor"]) == (0.4, None)
        assert "20 of 50 files" in pulse("top").out
        file.touch()
        child.expect("COMPLETED")
        assert ended(child) == 0
        out, _ = piped.communicate(timeout=30)
    jobs = [json.loads(line) for line in [first, *out.splitlines()]]
    assert [job["status"] for job in jobs][:: len(jobs) - 1] == ["PENDING", "COMPLETED"]
    assert [job["progress"]["cursor"] for job in jobs if job["progress"]] == [{"file": 20}]
    assert jobs[-1]["progress"] is None


def test_watch_of_a_finished_job_shows_it_and_ends(pulse: CommandLine, topic: str) -> None:
    job_id = pulse("submit", topic, "-o", "plain").out.strip()
    pulse("jobs", "cancel", job_id)
    shown = pulse("jobs", "get", job_id, "--watch")
    assert (shown.code, "CANCELED" in shown.out) == (0, True)


def progress(fraction: float | None, seconds: float = 60.0, text: str = "") -> sdk.Progress:
    """Progress of an attempt that began so long before now."""
    return sdk.Progress(fraction, text, reported_at=NOW, since=NOW - timedelta(seconds=seconds))


@each_row(
    "fraction, seconds, words",
    [
        (0.5, 60, "50%, about 1m left"),
        (0.5, 59, "50%, less than a minute left"),
        (0.999, 6000, "99%, less than a minute left"),
        (0.1, 3600, "10%, about 9h left"),
        (0.01, 36000, "1%, about 41d left"),
        (0.0001, 36000, "0%"),
        (0.0, 3600, "0%"),
        (1.0, 3600, "100%"),
        (0.29, 0, "29%"),
        (None, 60, ""),
    ],
)
def test_rest_is_estimated_in_round_numbers(fraction: float | None, seconds: float, words: str) -> None:
    assert summary(progress(fraction, seconds), NOW) == words


def test_estimate_shrinks_as_time_passes_and_an_old_one_is_left_out() -> None:
    half = progress(0.5, 300)
    assert rest(half, NOW) == "about 5m left"
    assert rest(half, NOW + timedelta(minutes=2)) == "about 3m left"
    assert rest(half, NOW + timedelta(minutes=9)) == "less than a minute left"
    assert rest(half, NOW + timedelta(minutes=11)) == ""
    assert summary(half, NOW, runs=False) == percent(half) == "50%"


def test_top_shows_jobs_with_progress_and_still_fits() -> None:
    held = tuple(
        sdk.HeldJob(
            f"job-{number}", "copy", 1, NOW, NOW, progress(number / 20, text=f"file {number} {'x' * 150}")
        )
        for number in range(20)
    )
    workers = [sdk.WorkerInfo("w1", ("copy",), 20, NOW, "a", 20, held)]
    seen = Snapshot(sdk.DispatchStatus(False, "", None, {}), [], workers, NOW)
    lines = frame(seen, (), "", "", 80, 24)
    text = ["".join(cell.text for cell in line) for line in lines]

    assert len(lines) <= 24
    assert max(map(line_width, lines)) <= 80
    first = next(line for line in text if line.startswith("job-"))
    assert first.startswith("job-19")
    assert "95%" in first
    assert "… and" in text[-1]
    (_, *rows) = describe_held(workers, None)
    assert all("%, file" in "".join(cell.text for cell in row) for row in rows)
    everything = frame(seen, (), "", "", None, None)
    assert sum(line[0].text.startswith("job-") for line in everything if line) == 20
