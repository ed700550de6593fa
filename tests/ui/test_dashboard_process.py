"""The command `pulse-ui`, as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.rows import each_row

_PATIENCE_SECONDS = 30


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pulse_ui", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )


@contextmanager
def dashboard_process(*arguments: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run it on a free port. Yields the process and its address, once it serves."""
    command = [sys.executable, "-m", "pulse_ui", "--addr", "127.0.0.1:0", *arguments]
    with subprocess.Popen(
        command, env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            found = next(
                found for line in process.stderr if (found := re.search(r"is at (https?://[^,]+),", line))
            )
            yield process, found[1]
        finally:
            process.kill()


def test_help_needs_neither_grpc_nor_a_web_server() -> None:
    script = (
        "import sys, pulse_ui.main\n"
        "try: pulse_ui.main.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('grpc', 'uvicorn', 'starlette', 'jinja2') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


@each_row(
    "arguments, sentence",
    [
        (["--addr", "nonsense"], "PULSE_UI_ADDR='nonsense' is not an address"),
        (["--server", "no port:x"], "The address 'no port:x' cannot be understood"),
    ],
)
def test_bad_setting_is_one_sentence_and_exit_1(arguments: list[str], sentence: str) -> None:
    answer = run(*arguments)
    assert (answer.returncode, answer.stderr.count("\n"), sentence in answer.stderr) == (1, 1, True)


def test_address_that_is_taken_is_one_sentence_and_exit_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = run("--addr", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (answer.returncode, "Choose another address with --addr" in answer.stderr) == (1, True)
    assert "Traceback" not in answer.stderr


def test_sigterm_ends_it_well() -> None:
    with dashboard_process("--server", "127.0.0.1:1") as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(_PATIENCE_SECONDS) == 0
