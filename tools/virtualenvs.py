"""Virtual environments, made in whichever way works on this machine."""

import shutil
import sys
from datetime import timedelta
from pathlib import Path

from tools.environment import Problem, call

# uv does not know the mirrors that pip is configured with, and may wait long for one that it cannot reach.
UV_LIMIT = timedelta(minutes=5)


def make_virtualenv(directory: Path, lock: int, base: Path | str | None = None) -> None:
    """Make a new, empty environment of this Python or another, with pip, in place of what was there."""
    if base is None:
        base = getattr(sys, "_base_executable", sys.executable)  # .venv's own may be running, and is removed
    python = directory / "bin" / "python"
    ways = [
        [[base, "-m", "venv", directory]],
        # Debian without python3-venv lacks ensurepip, but its pip can install into a bare environment.
        [
            [base, "-m", "venv", "--without-pip", directory],
            [base, "-m", "pip", "--python", python, "install", "pip"],
        ],
        [[base, "-m", "virtualenv", directory]],
    ]
    if uv := shutil.which("uv"):
        ways.insert(0, [[uv, "venv", "--seed", "--python", base, directory]])
    for commands in ways:
        remove_virtualenv(directory)
        if all(call(command, lock=lock, limit=UV_LIMIT)[0] == 0 for command in commands):
            return
    raise Problem(
        f"{base} can make no virtual environment. On Debian and Ubuntu: apt install python3-venv. "
        "Elsewhere: python3 -m pip install --user virtualenv. Then run this again."
    )


def remove_virtualenv(directory: Path) -> None:
    """Remove what is at the place of an environment, whatever it is."""
    try:
        if directory.is_symlink() or directory.is_file():
            directory.unlink()
        elif directory.exists():
            shutil.rmtree(directory)
    except OSError as error:
        raise Problem(f"{directory} cannot be replaced: {error}. Remove it, then run this again.") from error
