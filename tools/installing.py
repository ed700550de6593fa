"""What goes into an environment: the locked versions, the newest or the oldest that pyproject.toml allows."""

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools import locks
from tools.declared import Profile, requirements
from tools.environment import Problem, call, say
from tools.virtualenvs import UV_LIMIT

Arguments = Sequence[str | Path]

# pip's words for a file that is not the one that was locked.
_OTHER_FILE = "DO NOT MATCH THE HASHES"


def install(profile: Profile, python: Path, lock: int) -> None:
    """Install pulse, editable, and what the profile needs into the environment of that Python."""
    if profile is Profile.OLDEST:
        install_declared(profile, python, lock, oldest_versions(python))
    elif not locks.are_current():
        say("requirements/ does not match pyproject.toml (run: python3 dev.py lock);")
        say("installing the newest versions that are allowed ...")
        install_declared(profile, python, lock)
    elif problem := install_locked(profile, python, lock):
        if _OTHER_FILE in problem:
            raise Problem(
                "pip was given another file than the one whose hash is in requirements/. Unless a mirror of "
                f"yours builds packages itself, do not trust it. pip's words:\n{indented(problem)}"
            )
        say(f"the locked versions do not install for Python {platform.python_version()} on this machine:")
        say(f"{indented(problem, last=1)}\ninstalling the newest ones that are allowed ...")
        install_declared(profile, python, lock)


def install_locked(profile: Profile, python: Path, lock: int) -> str | None:
    """Install exactly the locked files. Returns the output of the installer if it failed."""
    files = [argument for path in locks.locks_of(profile) for argument in ("--requirement", path)]
    # Wheels only: a build from source would take minutes, and fetch tools with unchecked hashes.
    locked = ["--require-hashes", "--only-binary", ":all:", *files]
    checkout = ["--no-deps", "--no-build-isolation", "--editable", "."]
    return run_installer(locked, python, lock) or run_installer(checkout, python, lock)


def install_declared(profile: Profile, python: Path, lock: int, constraints: Arguments = ()) -> None:
    """Install what pyproject.toml allows, as new as the constraints leave it."""
    declared = [requirement.text for requirement in requirements(profile)]
    if problem := run_installer(["--editable", ".", *declared, *constraints], python, lock):
        raise Problem(
            "pip could not install what pulse needs. See to the network or pip's configuration, then run "
            f"this again. Its last lines:\n{indented(problem, last=20)}"
        )


def oldest_versions(python: Path) -> Arguments:
    """Return constraints that leave of each requirement its oldest version only."""
    path = python.parent.parent / "oldest.txt"
    lines = [f"{requirement.name}=={requirement.oldest}" for requirement in requirements(Profile.OLDEST)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return ["--constraint", path]


def run_installer(arguments: Arguments, python: Path, lock: int) -> str | None:
    """Install with uv where that works, else with pip. Returns pip's words if neither could."""
    if uv := shutil.which("uv"):
        code, _ = call([uv, "pip", "install", "--python", python, *arguments], lock=lock, limit=UV_LIMIT)
        if code == 0:
            return None
        say("uv could not install the packages (it does not read pip's configuration); using pip ...")
    code, output = call([python, "-m", "pip", "install", "--quiet", "--no-input", *arguments], lock=lock)
    return output if code else None


def indented(output: str, *, last: int = 0) -> str:
    return "\n".join(f"  {line}" for line in output.rstrip().splitlines()[-last:])
