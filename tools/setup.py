"""The set-up of .venv: done once, repeated when its inputs change or when it was interrupted."""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum

from tools.environment import PYTHON, ROOT, VENV, Problem, call, say

STAMP = VENV / "pulse-setup.json"
LOCK = ROOT / ".venv.lock"
SETUP_VERSION = 1  # raise it when a .venv made by older code no longer serves

# uv does not know the mirrors that pip is configured with, and may wait long for one that it cannot reach.
UV_LIMIT = timedelta(minutes=5)


class Profile(StrEnum):
    """What is installed: what pulse needs to run, or the tools for tests and checks as well."""

    RUN = "run"
    DEVELOP = "develop"


def ensure_setup(profile: Profile) -> bool:
    """Make .venv serve the profile. Returns False, within milliseconds, if it did already."""
    if is_ready(profile):
        return False
    with setup_lock() as lock:
        if is_ready(profile):
            return False  # done by the process that we waited for
        set_up(profile, lock)
    return True


def is_ready(profile: Profile) -> bool:
    stamp = read_stamp()
    return (
        stamp.get("environment") == environment_key()
        and stamp.get("packages") == packages_key()
        and stamp.get("profile") in (profile, Profile.DEVELOP)
        and PYTHON.exists()
    )


def set_up(profile: Profile, lock: int) -> None:
    """Make .venv, or update it where only the packages changed."""
    started = time.monotonic()
    stamp = read_stamp()
    if stamp.get("environment") == environment_key() and PYTHON.exists():
        say("updating .venv ...")
        # Without a stamp .venv counts as unfinished: an interruption from here on means starting anew.
        STAMP.unlink()
        profile = Profile.DEVELOP if stamp.get("profile") == Profile.DEVELOP else profile
    else:
        say("setting up .venv (once, about a minute) ...")
        make_venv(lock)
    install(profile, lock)
    STAMP.write_text(
        json.dumps({"environment": environment_key(), "packages": packages_key(), "profile": profile})
    )
    say(f"set-up done in {time.monotonic() - started:.0f} s")


def make_venv(lock: int) -> None:
    """Make a new, empty .venv with pip in it, in the first way that works on this machine."""
    python = getattr(sys, "_base_executable", sys.executable)  # .venv's own may be running, and is removed
    ways = [
        [[python, "-m", "venv", VENV]],
        # Debian without python3-venv lacks ensurepip, but its pip can install into a bare environment.
        [
            [python, "-m", "venv", "--without-pip", VENV],
            [python, "-m", "pip", "--python", PYTHON, "install", "pip"],
        ],
        [[python, "-m", "virtualenv", VENV]],
    ]
    if uv := shutil.which("uv"):
        ways.insert(0, [[uv, "venv", "--seed", "--python", python, VENV]])
    for commands in ways:
        remove_venv()
        if all(call(command, lock=lock, limit=UV_LIMIT)[0] == 0 for command in commands):
            return
    raise Problem(
        f"{python} can make no virtual environment. On Debian and Ubuntu: apt install python3-venv. "
        "Elsewhere: python3 -m pip install --user virtualenv. Then run this again."
    )


def remove_venv() -> None:
    try:
        if VENV.is_symlink() or VENV.is_file():
            VENV.unlink()
        elif VENV.exists():
            shutil.rmtree(VENV)
    except OSError as error:
        raise Problem(f".venv cannot be replaced: {error}. Remove it, then run this again.") from error


def install(profile: Profile, lock: int) -> None:
    """Install pulse, editable, and what the profile needs: with uv where that works, else with pip."""
    packages = ["--editable", ".[all]"]
    if profile is Profile.DEVELOP:  # pip before 25.1 cannot read the group itself
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        packages += project["dependency-groups"]["dev"]
    if uv := shutil.which("uv"):
        code, _ = call([uv, "pip", "install", "--python", PYTHON, *packages], lock=lock, limit=UV_LIMIT)
        if code == 0:
            return
        say("uv could not install the packages (it does not read pip's configuration); using pip ...")
    code, output = call([PYTHON, "-m", "pip", "install", "--quiet", "--no-input", *packages], lock=lock)
    if code:
        last_lines = "\n".join(f"  {line}" for line in output.rstrip().splitlines()[-20:])
        raise Problem(
            "pip could not install what pulse needs. See to the network or pip's configuration, then run "
            f"this again. Its last lines:\n{last_lines}"
        )


def read_stamp() -> dict[str, str]:
    """Return what the last finished set-up left, or nothing if it did not finish."""
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_bytes())
    except (OSError, ValueError):
        return {}
    return stamp


def environment_key() -> str:
    """Return what .venv itself depends on. The path is part: a copied .venv still points to its origin."""
    return f"{SETUP_VERSION} {sys.version_info[:2]} {sys.base_prefix} {ROOT}"


def packages_key() -> str:
    """Return what the installed packages depend on."""
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()


@contextmanager
def setup_lock() -> Iterator[int]:
    """Hold the set-up lock, after waiting for another process that holds it. It is released on any death."""
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise Problem(f"the checkout cannot be written to: {error}. Use a copy of your own.") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another dev.py is setting up .venv; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)
