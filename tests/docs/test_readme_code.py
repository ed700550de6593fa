"""The code of README.md runs as it stands there."""

from __future__ import annotations

import ast
import inspect
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulse
from tests.docs.pages import ROOT, Page
from tests.examples.programs import program

README = Page(ROOT / "README.md")
BLOCKS = [block for block in README.blocks if block.language == "python"]


async def test_worker_of_the_readme_runs_its_job_and_stops_at_sigterm(tmp_path: Path, address: str) -> None:
    (worker,) = (block for block in BLOCKS if block.program)
    path = tmp_path / worker.program
    path.write_text(worker.text.replace("localhost:50051", address))
    async with program(str(path)) as running:
        await running.says("attempt 1: mail to ada@example.org")
        running.process.send_signal(signal.SIGTERM)
        assert await running.ends() == 0


async def test_fragment_of_the_readme_can_be_run(address: str) -> None:
    """With the names that the text around it implies."""
    (fragment,) = (block for block in BLOCKS if not block.program)
    async with pulse.Pulse(address) as p:
        job = await p.enqueue("readme")
        names: dict[str, Any] = {
            "p": p,
            "pulse": pulse,
            "timedelta": timedelta,
            "job_id": job.id,
        }
        await execute(fragment.text, names)
        declared = await p.declare()
        assert {schedule.topic for schedule in declared} == {"report"}
        assert (await p.get_job(job.id)).status is pulse.JobStatus.PENDING, "canceled, then retried"
        assert not (await p.dispatch_status()).topics, "paused, then resumed"


async def execute(source: str, names: dict[str, Any]) -> None:
    """Run a fragment that may await."""
    code = compile(source, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(code, names)
    if inspect.isawaitable(outcome):
        await outcome
