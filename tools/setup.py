"""The set-up of an environment: done once, repeated when its inputs change or when it was interrupted."""

import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import locks
from tools.declared import PROJECT, Profile
from tools.environment import OLDEST_VENV, ROOT, VENV, Problem, say
from tools.installing import install
from tools.virtualenvs import make_virtualenv

LOCK = ROOT / ".venv.lock"
SETUP_VERSION = 1  # raise it when an environment made by older code no longer serves


def ensure_setup(profile: Profile) -> bool:
    """Make the profile's environment serve it. Returns False, within milliseconds, if it did already."""
    if is_ready(profile):
        return False
    with setup_lock() as lock:
        if is_ready(profile):
            return False  # done by the process that we waited for
        set_up(profile, lock)
    return True


def is_ready(profile: Profile) -> bool:
    """True if the profile's environment is there, for the packages that are wanted now."""
    stamp = read_stamp(profile)
    return (
        stamp.get("environment") == environment_key()
        and stamp.get("packages") == packages_key()
        and stamp.get("profile") in (profile, Profile.DEVELOP)
        and python_of(profile).exists()
    )


def set_up(profile: Profile, lock: int) -> None:
    """Make the environment, or update it where only the packages changed."""
    started = time.monotonic()
    place, python = place_of(profile), python_of(profile)
    name = place.relative_to(ROOT)
    stamp = read_stamp(profile)
    if stamp.get("environment") == environment_key() and python.exists() and profile is not Profile.OLDEST:
        say(f"updating {name} ...")
        # Without a stamp it counts as unfinished: an interruption from here on means starting over.
        stamp_of(profile).unlink()
        profile = Profile.DEVELOP if stamp.get("profile") == Profile.DEVELOP else profile
    else:
        say(f"setting up {name} (once, about a minute) ...")
        make_virtualenv(place, lock)
    install(profile, python, lock)
    stamp_of(profile).write_text(
        json.dumps({"environment": environment_key(), "packages": packages_key(), "profile": profile})
    )
    say(f"set-up done in {time.monotonic() - started:.0f} s")


def place_of(profile: Profile) -> Path:
    """Return the directory of the environment that serves a profile."""
    return OLDEST_VENV if profile is Profile.OLDEST else VENV


def python_of(profile: Profile) -> Path:
    return place_of(profile) / "bin" / "python"


def stamp_of(profile: Profile) -> Path:
    return place_of(profile) / "pulse-setup.json"


def read_stamp(profile: Profile) -> dict[str, str]:
    """Return what the last finished set-up left, or nothing if it did not finish."""
    try:
        stamp: dict[str, str] = json.loads(stamp_of(profile).read_bytes())
    except (OSError, ValueError):
        return {}
    return stamp


def environment_key() -> str:
    """Return what an environment itself depends on. The path is part: a copy still points to its origin."""
    return f"{SETUP_VERSION} {sys.version_info[:2]} {sys.base_prefix} {ROOT}"


def packages_key() -> str:
    """Return what the installed packages depend on."""
    tables = [PROJECT[table] for table in ("build-system", "project", "dependency-groups")]
    inputs = [json.dumps(tables), *(locks.text(lock) for lock in locks.LOCKS)]
    return hashlib.sha256("\n".join(inputs).encode()).hexdigest()


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
