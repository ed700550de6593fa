"""What a user with `mypy --strict` sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USAGE = """
from dataclasses import dataclass
from datetime import timedelta
import pulse

p = pulse.Pulse()
s = pulse.SyncPulse()

@dataclass
class Email:
    to: str

@p.job("document")
async def document(args: Email, ctx: pulse.Context) -> None: ...

@p.job("plain")
async def plain(ctx: pulse.Context, to: str, copies: int = 1) -> int: return copies

@s.job("blocking")
def blocking(to: str) -> str: return to

async def right() -> None:
    handle: pulse.JobHandle = await document.enqueue(Email("a"))
    await document.options(priority=3, key="k").enqueue(Email("a"))
    await plain.enqueue("a", copies=2)
    number: int = await plain(pulse.Context(), "a")
    text: str = blocking("a")
    stored: pulse.JobHandle = blocking.enqueue("a")
    info: pulse.JobInfo = await p.get_job(handle.id)
    async for job in p.iter_jobs(status=pulse.JobStatus.RUNNING):
        info = job
    declared: pulse.Declaration = p.every("plain", timedelta(minutes=5))
    schedule: pulse.ScheduleInfo = await p.cron("plain", "@daily", tz="Europe/Paris", catch_up="skip")
    schedule = await p.schedule("plain", None, pulse.After(timedelta(1)))
    fired: pulse.JobHandle = await p.schedules.fire(schedule)
    schedule = s.schedules.update(schedule, spec=pulse.Cron("@hourly"))
    paused: bool = s.dispatch_status().paused
    async for schedule in p.schedules.iter():
        pass

async def wrong() -> None:
    await document.enqueue("a")
    await plain.enqueue(copies=2)
    await plain.enqueue("a", copies="many")
    blocking.enqueue(5)
    await document.options(prioritty=3).enqueue(Email("a"))
    await p.schedule("plain", None, timedelta(1))
    p.every("plain", timedelta(1), catch_up="most")
    await s.every("plain", timedelta(1))
"""


def test_enqueue_is_typed_by_the_handler(tmp_path: Path) -> None:
    usage = tmp_path / "usage.py"
    usage.write_text(USAGE)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(usage)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    lines = USAGE.splitlines()
    first_wrong = lines.index("async def wrong() -> None:") + 2
    complaints = {int(line.split(":")[1]) for line in checked.stdout.splitlines() if ": error:" in line}
    assert complaints == set(range(first_wrong, len(lines) + 1)), checked.stdout + checked.stderr
