"""The interpreter that a run is made on: one that was built with PGO, where the machine has it.

A virtual environment for it, with the locked packages, is made once in the cache of the benchmarks. The whole
benchmark moves there: servers, workers, producers and the peers in Python run on the same interpreter.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from benchmarks.interpreters import Interpreter, find_optimized, inspect
from tools.declared import Profile
from tools.environment import PYTHON, ROOT, Problem, become
from tools.installing import install
from tools.setup import packages_key, setup_lock
from tools.virtualenvs import make_virtualenv

OWN = "own"


def move(wanted: str | None) -> None:
    """Continue on the interpreter that is wanted: does not return unless this process runs on it already.

    Without a wish that is an optimized one, if there is one and this one is not; `own` is the one of .venv.
    """
    here = inspect(sys.executable)
    there = _chosen(wanted, here)
    if here is None or there is None or there.path == here.path:
        return
    if there.path == _of_checkout():
        _continue_on(PYTHON)
    _continue_on(ensure(there))


def plain() -> Path | None:
    """Return the Python of .venv, if this process runs another one and it is not optimized."""
    here, other = inspect(sys.executable), inspect(PYTHON)
    if here is None or other is None or other.path == here.path or other.is_optimized:
        return None
    return PYTHON


def ensure(interpreter: Interpreter) -> Path:
    """Return the Python of a virtual environment for an interpreter, made if it is missing or out of date."""
    # One for each checkout: pulse is installed editable, as in .venv.
    key = hashlib.sha256(f"{interpreter.path} {interpreter.version} {ROOT}".encode()).hexdigest()[:8]
    folder = cache() / "pythons" / f"{interpreter.version}-{key}"
    python, stamp = folder / "bin" / "python", folder / "installed"
    with setup_lock() as lock:
        if stamp.exists() and stamp.read_text() == packages_key() and python.exists():
            return python
        print(f"making an environment for {interpreter.path} in {folder} …", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_virtualenv(folder, lock, base=interpreter.path)
        install(Profile.DEVELOP, python, lock)  # as .venv: tls needs a package of the tests
        stamp.write_text(packages_key())
    return python


def cache() -> Path:
    """Return the folder for files kept between runs, outside of the checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulse-bench"


def _chosen(wanted: str | None, here: Interpreter | None) -> Interpreter | None:
    if wanted is None:
        return here if here and here.is_optimized else find_optimized()
    found = inspect(PYTHON if wanted == OWN else wanted)
    if found is None:
        raise Problem(
            f"{wanted} is no Python 3.11 or newer. Name the program, e.g. --python /usr/bin/python3"
        )
    return found


def _of_checkout() -> Path | None:
    own = inspect(PYTHON)
    return own.path if own else None


def _continue_on(python: Path) -> NoReturn:
    become("-m", "benchmarks", *sys.argv[1:], python=python)
