"""Follows a page: saves its programs, types its commands, checks what they print.

- A block of Python or TOML whose first line is `# name.py` is saved under that name; with `, at the end` it
  is added.
- A block of kind diff changes the lines of the file that its first line names.
- In a console block, what follows a command is what it prints. `pulsed`, `pulse worker`, `pulse-ui`,
  `pulse outbox relay`, `python manage.py pulse_worker` and `uvicorn` get a terminal of their own, and go on;
  `^C` interrupts the worker. `curl` is a request of this process, so that no machine needs the program.
- A block of kind text is what the worker's terminal shows next.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from pulse_cli.main import run
from tests.docs.pages import ROOT, Block
from tests.docs.transcripts import Transcript

PATIENCE_SECONDS = 60
_POLL_SECONDS = 0.05
_GOES_ON = re.compile(
    r"(pulsed|pulse worker|python manage.py pulse_worker|pulse outbox relay|pulse-ui|uvicorn)\b"
)
# A warning of the client. Whether it comes depends on how long the server has run.
_NO_WORKER = re.compile(r"^No worker that takes .*\n", re.MULTILINE)
# Others count a moment behind what was done: who reads too soon reads again.
_LOOKS = re.compile(
    r"pulse (jobs (list|get)|schedules (list|fires|preview)|dispatch status|dead-letters|topics|workers)\b"
)


class Terminal:
    """A program that goes on, and what it has printed."""

    def __init__(self, command: str, log: Path, cwd: Path, environment: dict[str, str]) -> None:
        self.command = command
        self._log = log
        self._seen = 0
        with log.open("ab") as output:
            # A session of its own, so that an interrupt reaches the whole of it, as one at a terminal does.
            self._process = subprocess.Popen(
                shlex.split(command),
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def shows(self, expected: str, transcript: Transcript) -> None:
        """Wait until it has printed these lines, after those that were looked at before."""

        def has_come() -> bool:
            end = transcript.end_in(expected, self.printed, self._seen)
            self._seen = self._seen if end is None else end
            return end is not None

        await_fact(
            has_come,
            lambda: f"`{self.command}` shows\n{expected}\nIt has printed:\n{self.printed[self._seen :]}",
        )

    def interrupt(self) -> int:
        """Press Ctrl-C. Returns the exit code."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(PATIENCE_SECONDS)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        if self.is_running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class Reader:
    """Follows a page, in a directory that the page's commands may change."""

    def __init__(self, home: Path, directory: Path, **variables: str) -> None:
        self.directory = directory
        self.transcript = Transcript()
        self.terminals: dict[str, Terminal] = {}
        self._home = home
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PULSE_", "DB_", "PG", "XDG_", "PYTEST_"))
            and name not in ("NO_COLOR", "COLUMNS", "LINES")
        }
        self.environment = inherited | {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "PYTHONPATH": str(ROOT / "src"),
            "TZ": "UTC",
            **variables,
        }

    def follow(self, block: Block) -> None:
        """Do what the block asks for. Raises AssertionError if something else happens than the page says."""
        if block.language == "console":
            for command, expected in _commands(block.text):
                self._do(command, expected)
        elif block.language == "text":
            self.worker.shows(block.text, self.transcript)
        elif block.language == "diff":
            self._change(block.text)
        elif block.language in ("python", "toml"):
            self._save(block.text)
        else:
            raise AssertionError(f"line {block.line}: unknown kind of block: {block.language!r}")

    @property
    def worker(self) -> Terminal:
        return self.terminals.get("pulse worker") or self.terminals["python manage.py pulse_worker"]

    def close(self) -> None:
        for terminal in self.terminals.values():
            terminal.kill()

    # ------------------------------------------------------------ commands

    def _do(self, command: str, expected: str) -> None:
        command = self.transcript.as_typed(command)
        if command == "^C":
            assert self.worker.interrupt() == 0
            self.worker.shows(expected, self.transcript)
        elif found := _GOES_ON.match(command):
            log = self._home / f"{found[0].replace(' ', '-')}.log"
            if found[0] == "uvicorn" and (earlier := self.terminals.get("uvicorn")):
                assert earlier.interrupt() == 0
                log.unlink()  # it also says that it runs
            terminal = Terminal(command, log, self.directory, self.environment)
            self.terminals[found[0]] = terminal
            terminal.shows(expected, self.transcript)
        elif _LOOKS.match(command):
            printed = ""

            def is_so() -> bool:
                nonlocal printed
                _, printed = self._run(command)
                return self.transcript.is_whole(expected, printed)

            await_fact(is_so, lambda: f"`{command}` prints\n{expected}\nIt prints:\n{printed}")
        else:
            code, printed = self._run(command)
            if expected:
                assert self.transcript.is_whole(expected, printed), (
                    f"`{command}` prints\n{expected}\nnot\n{printed}"
                )
            else:
                assert code == 0, f"`{command}` ended with {code}:\n{printed}"

    def _run(self, command: str) -> tuple[int, str]:
        code, printed = self._ran(command)
        return code, _NO_WORKER.sub("", printed)

    def _ran(self, command: str) -> tuple[int, str]:
        if command.startswith("pulse "):
            return self._run_pulse(shlex.split(command)[1:])
        if command.startswith("curl "):
            return 0, self._request(shlex.split(command)[1:])
        script = f"{command}\ncode=$?; pwd >&3; exit $code"
        where = self._home / "where"
        ran = subprocess.run(
            ["bash", "-c", f"exec 3>{shlex.quote(str(where))}\n{script}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        self.directory = Path(where.read_text().strip())
        return ran.returncode, ran.stdout

    def _request(self, arguments: list[str]) -> str:
        """Make a request as curl does. The server listens on the port of `UVICORN_PORT`."""
        url = arguments[-1].replace(":8000", f":{self.environment['UVICORN_PORT']}")
        request = urllib.request.Request(url, method="POST" if "POST" in arguments else "GET")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return str(answer.read(), "utf-8")
        except urllib.error.HTTPError as error:
            return str(error.read(), "utf-8")

    def _run_pulse(self, arguments: list[str]) -> tuple[int, str]:
        """Run the command line within this process: to start one each time would take most of the test."""
        # In a pipe a submit prints the id alone. The reader of a page sees its sentence.
        output = _Screen() if arguments[0] == "submit" and "--wait" not in arguments else io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch.object(sys, "stdin", io.StringIO()),
            mock.patch.object(sys, "stdout", output),
            mock.patch.object(sys, "stderr", output),
        ):
            code = run(arguments)
        return code, output.getvalue()

    # ------------------------------------------------------------ files

    def _save(self, text: str) -> None:
        first, _, rest = text.partition("\n")
        found = re.fullmatch(r"# ([\w/]+\.(?:py|toml))(, at the end)?", first)
        assert found, f"the first line does not name a file: {first}"
        path = self.directory / found[1]
        _replace(path, f"{path.read_text()}\n\n{rest}" if found[2] else text)

    def _change(self, text: str) -> None:
        first, *lines = text.splitlines()
        path = self.directory / first.removeprefix(" # ")
        source = path.read_text()
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] != sign) for sign in "+-")
        assert source.count(old) == 1, f"{path.name} has this not exactly once:\n{old}"
        _replace(path, source.replace(old, new))


def _replace(path: Path, text: str) -> None:
    """Save a file at once, as editors do: who looks meanwhile sees the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def await_fact(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    """Look until it is so; fail and say what should have come true when that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"this did not come true: {what()}"
        time.sleep(_POLL_SECONDS)


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with what it prints, as far as the page says it."""
    for found in re.finditer(
        r"^(?:\$ (?P<typed>.+)|(?P<key>\^C))\n(?P<expected>(?:(?!\$ |\^C).*\n)*)", text, re.M
    ):
        yield found["typed"] or found["key"], found["expected"]
