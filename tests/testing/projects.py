"""Small projects whose test suites run in a process of their own, as in an application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

# A queue that must not be reached: a connection to it fails.
DEVELOPERS_QUEUE = "localhost:1"


def suite_result(directory: Path, files: dict[str, str], *options: str, **variables: str) -> str:
    """Write the files and run pytest, or another module, there. Returns what it printed, after a success."""
    ended = run_suite(directory, files, *options, **variables)
    printed = ended.stdout + ended.stderr
    assert ended.returncode == 0, printed
    return printed


def run_suite(
    directory: Path, files: dict[str, str], *options: str, module: str = "pytest", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Write the files, and run the module there."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(dedent(text))
    (directory / "pytest.ini").touch()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "PYTEST"))
    }
    environment |= {"PULSE_ADDR": DEVELOPERS_QUEUE, "PYTHONPATH": str(directory), **variables}
    return subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
