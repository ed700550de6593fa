"""The Pythons of this machine that pulse supports."""

import os
import shutil
import subprocess
from pathlib import Path

from tools.declared import PROJECT

_PREFIX = "Programming Language :: Python :: 3."
SUPPORTED = [
    entry.rpartition(" ")[2] for entry in PROJECT["project"]["classifiers"] if entry.startswith(_PREFIX)
]


def find_python(version: str) -> Path | None:
    """Return an interpreter of a version such as 3.12: on the path, or among those of pyenv."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (shutil.which(f"python{version}"), *kept.glob(f"{version}.*/bin/python{version}")):
        # A command of pyenv on the path may lead nowhere.
        if candidate and not subprocess.run([candidate, "--version"], capture_output=True).returncode:
            return Path(candidate)
    return None


def oldest_and_newest() -> dict[str, Path]:
    """Return the oldest and the newest of the supported Pythons that are here."""
    found = {version: python for version in SUPPORTED if (python := find_python(version))}
    ends = [*found][:1] + [*found][1:][-1:]
    return {version: found[version] for version in ends}
