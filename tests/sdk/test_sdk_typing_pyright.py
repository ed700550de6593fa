"""What a user with pyright sees. Skipped where pyright is not installed: `pip install pyright`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.test_sdk_typing import USAGE, VERBS

PYRIGHT = shutil.which("pyright")
pytestmark = pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")


def test_enqueue_is_typed_by_the_handler(tmp_path: Path) -> None:
    lines = USAGE.splitlines()
    first_wrong = lines.index("async def wrong() -> None:") + 2
    complaints = {at for at, severity, _ in pyright(tmp_path, USAGE) if severity == "error"}
    assert complaints == set(range(first_wrong, len(lines) + 1))


def test_blocking_verbs_have_the_signatures_of_the_async_ones(tmp_path: Path) -> None:
    lines = ["import pulse", "p = pulse.Pulse()", "s = pulse.SyncPulse()"]
    lines += [f"reveal_type({client}.{verb})" for client in "ps" for verb in VERBS]
    revealed = [
        re.findall('^Type of "[^"]*" is "(.*)"$', text) for _, _, text in pyright(tmp_path, "\n".join(lines))
    ]
    types = [text for found in revealed for text in found]
    expected, found = types[: len(VERBS)], types[len(VERBS) :]
    assert len(expected) == len(found) == len(VERBS)
    for verb, of_async, of_sync in zip(VERBS, expected, found, strict=True):
        assert of_sync == blocking(of_async), verb


def blocking(revealed: str) -> str:
    """Return the type that a blocking verb has, given that of the async one. Defaults are part of it."""
    for pattern, replacement in (
        (r"-> CoroutineType\[Any, Any, (.*)\]$", r"-> \1"),
        (r"-> Declaration$", "-> None"),
        (r"AsyncGenerator\[(.*), None\]$", r"Generator[\1, None, None]"),
        (r"AsyncIterator\[", "Iterator["),
        (r"-> Job(Decorator$|\[)", r"-> SyncJob\1"),
        (r"^Schedules$", "SyncSchedules"),
        (r"router: Router", "router: SyncRouter"),
    ):
        revealed = re.sub(pattern, replacement, revealed)
    return revealed


def pyright(directory: Path, program: str) -> list[tuple[int, str, str]]:
    """Return line, severity and text of each message about the program."""
    usage = directory / "usage.py"
    usage.write_text(program)
    checked = subprocess.run(
        [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, str(usage)],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
    )
    messages: list[dict[str, Any]] = json.loads(checked.stdout)["generalDiagnostics"]
    return [(each["range"]["start"]["line"] + 1, each["severity"], each["message"]) for each in messages]
