"""Python processes of their own, for what cannot be tried in the process of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from tests.sdk.fake_pulsed import PATIENCE_SECONDS


def start_script(source: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a script that can import what the tests can import."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def finish_script(process: subprocess.Popen[str]) -> str:
    """Return what the script printed. It has to end by itself, well, and silently on stderr."""
    try:
        printed, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert (process.returncode, complaints) == (0, "")
    return printed


def run_script(source: str, *arguments: str) -> str:
    """Run a script to its end and return what it printed."""
    return finish_script(start_script(source, *arguments))
