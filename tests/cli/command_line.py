"""`pulse` as its users meet it: piped, within this process or as one of its own, and at a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pexpect

from pulse_cli.main import run
from tests.cli.terminal import PATIENCE_SECONDS, Terminal

SOURCES = Path(__file__).resolve().parents[2] / "src"
# With the modules of the tests that run `pulse` in another way.
WITH_TESTS = os.pathsep.join((str(SOURCES), str(SOURCES.parent)))


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The output in plain form: a list of fields for each line."""
        return [line.split("\t") for line in self.out.splitlines()]


@dataclass
class CommandLine:
    """Runs `pulse` with a home of its own, and nothing of the environment that these tests run in."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def config_path(self) -> Path:
        return self.home / ".config" / "pulse" / "config.json"

    def __call__(self, *arguments: str, stdin: str | bytes = "", **variables: str) -> Result:
        """Run a command in this process, as in a pipe."""
        content = stdin if isinstance(stdin, bytes) else stdin.encode()
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment(variables), clear=True),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")),
            mock.patch.object(sys, "stdout", out),
            mock.patch.object(sys, "stderr", err),
        ):
            code = run(arguments)
        return Result(code, out.getvalue(), err.getvalue())

    def process(
        self, *arguments: str, cwd: Path | None = None, module: str = "pulse_cli", **variables: str
    ) -> subprocess.Popen[str]:
        """Start a command as a process with pipes. `module` is one that runs it in the way of a test."""
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=self.environment(variables),
            cwd=cwd,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @contextmanager
    def terminal(
        self,
        *arguments: str,
        columns: int = 80,
        lines: int = 30,
        cwd: Path | None = None,
        module: str = "pulse_cli",
        **variables: str,
    ) -> Iterator[Terminal]:
        """Run a command at a real terminal for the length of a block. It is killed if it still runs then."""
        environment = self.environment({"TERM": "xterm-256color"} | variables)
        terminal = Terminal([sys.executable, "-m", module, *arguments], environment, cwd, columns, lines)
        try:
            yield terminal
        finally:
            terminal.close()

    def screen(self, *arguments: str, columns: int = 80, **variables: str) -> Result:
        """Run a command at a terminal to its end. What it printed is all in `out`."""
        with self.terminal(*arguments, columns=columns, **variables) as child:
            code = ended(child)
            return Result(code, child.before.replace("\r\n", "\n"), "")

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PULSE_", "XDG_"))
            and name not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")
        }
        home = {"HOME": str(self.home), "PYTHONPATH": str(SOURCES), "TZ": "UTC"}
        return kept | home | self.variables | variables


def plain_text(screen: str) -> str:
    """Return what is on a screen, without its colors and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)


def ended(child: Terminal) -> int:
    """Read to the end and return the exit code."""
    child.expect(pexpect.EOF)
    return child.process.wait(PATIENCE_SECONDS)


def until(pulse: CommandLine, command: list[str], is_so: Callable[[Any], bool]) -> Any:
    """Ask for the JSON of a command until it is so: servers count a second behind. Fails if it never is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so(found := pulse(*command, "-o", "json").json):
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.2)
    return found
