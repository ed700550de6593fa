"""Takes the pictures of README.md and docs/dashboard.md: the demo's dashboard in the system's Chromium.

What they show has happened, with one exception: the charts go back an hour, and the demo runs for minutes.
The minutes before its start are copies of those that were measured, drawn at random, without dead letters.
Runs in .venv; Chromium has to be on PATH, or named by PULSE_CHROMIUM.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import asyncpg
from playwright.async_api import Browser, async_playwright

import pulse
from pulse_server.embedded.cluster import DATABASE, SUPERUSER
from pulse_server.embedded.directory import PORT
from tools.environment import ROOT, Problem, say

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 150_000
MINUTES_OF_LOAD = 5
_START_SECONDS = 180
_CHROMIUM = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)

# The first and the last measured minute are not whole. Dead letters can be counted on another page, so none
# are added here.
_FILL_THE_HOUR = """
WITH measured AS (
    SELECT DISTINCT minute FROM pulse.topic_minutes
    WHERE topic = 'orders/confirm' AND minute < date_trunc('minute', clock_timestamp())
    ORDER BY minute OFFSET 1
), earliest AS (
    SELECT min(minute) AS minute FROM pulse.topic_minutes
), drawn AS (
    SELECT earliest.minute - back * interval '1 minute' AS minute,
           (SELECT array_agg(minute) FROM measured)
               [1 + floor(random() * (SELECT count(*) FROM measured))::int] AS source
    FROM earliest, generate_series(1, 60) AS back
)
INSERT INTO pulse.topic_minutes
SELECT drawn.minute, stats.topic, stats.submitted, stats.completed, stats.failed, stats.retried,
       0, stats.canceled, stats.wait_buckets, stats.run_buckets, stats.ready, stats.running,
       stats.oldest_seconds
FROM drawn JOIN pulse.topic_minutes AS stats ON stats.minute = drawn.source
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Picture:
    path: str
    height: int
    width: int = 1280
    scheme: Literal["light", "dark"] = "light"
    follow: str = ""
    """The link on that page, as a selector, that leads to what is shown. Empty: the page itself."""


PICTURES = {
    "overview": Picture("/", 680),
    "dead-letters": Picture("/dead-letters", 740),
    "topic": Picture("/topics/images/resize", 880),
    "job": Picture("/jobs?topic=webhooks/deliver&status=PENDING", 720, follow=".job-name a"),
    "audit": Picture("/audit", 720),
    "jobs-on-a-phone": Picture("/jobs", 844, width=390, scheme="dark"),
}


async def take(minutes: float) -> dict[str, bytes]:
    """Run the demo for so many minutes of load. Returns the pictures by their names."""
    chromium = _chromium()
    with tempfile.TemporaryDirectory(prefix="pulse-") as directory:
        async with _demo(Path(directory)) as (address, server):
            say(f"the dashboard is at {address}; letting the shop run for {minutes:g} minutes ...")
            await asyncio.sleep(minutes * 60)
            await _operate(server)
            await _fill_the_hour(Path(directory))
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                pictures = {
                    name: await _picture(browser, address, picture) for name, picture in PICTURES.items()
                }
                await browser.close()
                return pictures


@asynccontextmanager
async def _demo(directory: Path) -> AsyncIterator[tuple[str, str]]:
    """Run the demo for the length of a block.

    Yields the addresses of its dashboard and of its server once the shop is open.
    """
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.demo", "--keep", str(directory)),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert demo.stdout is not None
    reading: asyncio.Task[bytes] | None = None
    try:
        address = server = ""
        async with asyncio.timeout(_START_SECONDS):
            async for line in demo.stdout:
                if found := re.search(r"Dashboard: (\S+)", line.decode()):
                    address = found[1]
                if found := re.search(r"answers at (\S+)", line.decode()):
                    server = found[1]
                if b"media-1" in line:
                    break
            else:
                raise Problem("the demo did not come as far as its shop. Run it by itself to see why.")
        reading = asyncio.create_task(demo.stdout.read())  # so that it never waits for a reader
        yield address, server
    finally:
        if demo.returncode is None:
            demo.send_signal(signal.SIGINT)
        await demo.wait()
        if reading is not None:
            await reading


async def _operate(server: str) -> None:
    """Do what operators of a shop do, for the audit."""
    async with pulse.Pulse(server) as p:
        await p.set_topic("images/resize", running=8, reason="the disk of media-1 is slow")
        kept = timedelta(days=90)
        await p.set_topic("payments/charge", keep_dead_lettered=kept, reason="for finance")
        await _all(p.prioritize_matching(5, reason="ticket 4711", topic="catalog/import", status="PENDING"))
        await _all(p.cancel_matching(reason="sent twice", topic="reminders/send", status="PENDING"))
        exports: pulse.JobFilter = {"topic": "exports/csv", "status": "DEAD_LETTERED"}
        await _all(p.retry_matching(reason="the export is mended", **exports))
        await p.pause(reason="erp.example.com answers 503", topic="webhooks/deliver")


async def _all(steps: AsyncGenerator[int, None]) -> None:
    async for _ in steps:
        pass


async def _fill_the_hour(directory: Path) -> None:
    # The lock names the process of the embedded Postgres, and its socket.
    sockets = (directory / "data" / "lock").read_text().split("\n")[1]
    database = await asyncpg.connect(host=sockets, port=PORT, user=SUPERUSER, database=DATABASE)
    try:
        await database.execute(_FILL_THE_HOUR)
    finally:
        await database.close()


async def _picture(browser: Browser, address: str, picture: Picture) -> bytes:
    context = await browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    answer = await page.goto(address + picture.path)
    if answer is None or not answer.ok:
        raise Problem(f"{address}{picture.path} cannot be shown.")
    if picture.follow:
        await page.locator(picture.follow).first.click()
        await page.locator("#outlook").wait_for()
    taken = await page.screenshot()
    await context.close()
    return taken


def write(pictures: dict[str, bytes]) -> None:
    """Write the pictures to docs/images. One that is too large to be looked at is a Problem."""
    IMAGES.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        if len(picture) > MOST_BYTES:
            raise Problem(f"{name}.png has more than {MOST_BYTES / 1000:.0f} kB: take less of the page.")
        (IMAGES / f"{name}.png").write_bytes(picture)
        say(f"wrote docs/images/{name}.png, {len(picture) / 1000:.0f} kB")


def _chromium() -> str:
    given = os.environ.get("PULSE_CHROMIUM")
    found = given or next((path for name in _CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        raise Problem("there is no Chromium on PATH. Install one, or name it with PULSE_CHROMIUM.")
    return found


def main() -> int:
    """Take the pictures. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="dev.py screenshots", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES_OF_LOAD, help="how long the demo runs first")
    try:
        write(asyncio.run(take(parser.parse_args().minutes)))
    except Problem as problem:
        print(f"dev.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
