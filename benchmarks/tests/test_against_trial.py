"""A comparison from its beginning to its end, and one that is interrupted: nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import each_row

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git repository")


def bench(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks", "submit", "--trial", "--against", "HEAD", "--rounds", "1"]
    return subprocess.Popen(
        [*command, "--python", "own", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def remaining(folder: Path) -> list[str]:
    """Return the processes that were started with this folder for their files."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (directory / "environ").read_bytes():
                found.append((directory / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_both_sides_are_measured_with_their_own_code(tmp_path: Path) -> None:
    scratch, written = tmp_path / "tmp", tmp_path / "figures.json"
    scratch.mkdir()
    with bench(scratch, "--json", str(written)) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    document = json.loads(written.read_text())
    (row,) = [figure for figure in document["figures"] if figure["name"] == "8 producers"]
    assert (row["unit"], row["better"]) == ("jobs/s", "more")
    assert len(row["base"]["repeats"]) == len(row["other"]["repeats"]) == 1
    assert f"| {row['ratio']:.3f} |" in output
    assert list(scratch.iterdir()) == []
    assert remaining(scratch) == []


@each_row("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_comparison_leaves_no_folder_and_no_process(
    number: signal.Signals, tmp_path: Path
) -> None:
    with bench(tmp_path) as process:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("round 1"):
            assert line, process.stderr.read() if process.stderr else ""
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
    assert remaining(tmp_path) == []
