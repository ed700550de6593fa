"""The locks in requirements/: one version and its hashes for each package of the development environment.

run.lock is enough for the demo; develop.lock has what the tests and checks need on top of it.
"""

import re
from pathlib import Path

from tools.declared import Profile, Requirement, build_requirements, fingerprint, requirements
from tools.environment import ROOT

RUN_LOCK = ROOT / "requirements" / "run.lock"
DEVELOP_LOCK = ROOT / "requirements" / "develop.lock"
LOCKS = (RUN_LOCK, DEVELOP_LOCK)

_MADE_FOR = "Made for the requirements {fingerprint} of pyproject.toml."


def locks_of(profile: Profile) -> list[Path]:
    """Return the locks that make up a profile."""
    return [RUN_LOCK] if profile is Profile.RUN else [RUN_LOCK, DEVELOP_LOCK]


def wanted(profile: Profile) -> list[Requirement]:
    """Return what the locks of a profile have to hold: what it needs, and what installs the checkout."""
    return [*requirements(profile), *build_requirements()]


def are_current() -> bool:
    """True if the locks match pyproject.toml."""
    return all(made_for() in text(lock) for lock in LOCKS)


def made_for() -> str:
    """Return the line with the requirements that a lock was made for."""
    return _MADE_FOR.format(fingerprint=fingerprint(wanted(Profile.DEVELOP)))


def text(lock: Path) -> str:
    """Return what a lock holds, nothing if it is not there yet."""
    return lock.read_text(encoding="utf-8") if lock.exists() else ""


def entries(text: str) -> dict[str, str]:
    """Return a lock's entries, each with its hashes, by what stands before the hashes."""
    found = re.findall(r"^\w.*(?:\n[ ]+.*)*", text, re.MULTILINE)
    return {entry.splitlines()[0].rstrip(" \\"): entry for entry in found}
