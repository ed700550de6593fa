"""The pages about workers in production and web applications: their programs run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, Page
from tests.docs.reader import Reader

HOW_TO = ROOT / "docs" / "how-to"


def test_workers_of_the_page_about_production_run(tmp_path: Path, address: str) -> None:
    reader = Reader(tmp_path, tmp_path, PULSE_ADDR=address)
    try:
        # The other blocks name an application that is not on the page.
        for block in Page(HOW_TO / "run-workers.md").blocks[:2]:
            reader.follow(block)
        assert reader.worker.interrupt() == 0
    finally:
        reader.close()


def test_site_of_the_page_about_web_applications_enqueues_or_fails(tmp_path: Path, address: str) -> None:
    blocks = Page(HOW_TO / "web-applications.md").blocks
    (program,) = [block for block in blocks if block.language == "python"]
    (tmp_path / program.program).write_text(program.text)
    visit = (
        "from site_of_the_shop import app\n"
        "for _ in range(3):\n"
        "    print(app({'PATH_INFO': '/ada'}, lambda status, headers: print(status)))\n"
    )
    for pulsed, status in ((address, "202 Accepted"), ("127.0.0.1:1", "503 Service Unavailable")):
        ran = subprocess.run(
            [sys.executable, "-c", visit],
            cwd=tmp_path,
            env={**os.environ, "PULSE_ADDR": pulsed, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.stdout.count(status) == 3, ran.stderr
