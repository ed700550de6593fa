"""The virtual environments of this checkout, and processes that run in them."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# For the tests with the oldest versions. Within the other, which every tool that reads a checkout leaves out.
OLDEST_VENV = VENV / "oldest"
OLDEST_PYTHON = OLDEST_VENV / "bin" / "python"

# What another virtual environment or a shell profile may have set, and what sends pip's packages elsewhere.
# Without bytecode, each of the hundreds of processes that the tests start would compile what it imports.
FOREIGN_VARIABLES = frozenset(
    {
        "PYTHONDONTWRITEBYTECODE",
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "MYPYPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"),
        *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON"),
    }
)


class Problem(Exception):
    """What went wrong and what to do next, in words for the person at the terminal."""


def say(line: str) -> None:
    """Print a line at once, so that it stands before the output of the process that follows."""
    print(line, flush=True)


def child_environment(python: Path = PYTHON) -> dict[str, str]:
    """Return the variables for a child process: this process's, less what belongs to other environments."""
    variables = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
    # Settings that pip may have for the user's own installs, and that a virtual environment refuses.
    return variables | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def call(
    command: Sequence[str | Path],
    *,
    limit: timedelta | None = None,
    lock: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a command to its end in the checkout. Returns its exit code and what it printed.

    A lock given here is held by the command too: when this process is killed, the next one waits for the
    orphan instead of working against it.
    """
    try:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=child_environment() | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit.total_seconds() if limit else None,
            pass_fds=() if lock is None else (lock,),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return result.returncode, result.stdout


def become(*arguments: str, python: Path = PYTHON) -> NoReturn:
    """Replace this process with an environment's Python: signals and the exit code need no forwarding."""
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(python, [str(python), *arguments], child_environment(python))
