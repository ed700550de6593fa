"""Builds the sdist and the wheel into dist/, checks them, and installs each extra as a user would."""

import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from tools import artifacts, versions
from tools.declared import PROJECT
from tools.environment import PYTHON, ROOT, Problem, call, say
from tools.pythons import SUPPORTED, oldest_and_newest

DIST = ROOT / "dist"

# Installs run side by side: they wait for the network and for the disk.
_AT_ONCE = 3
_TESTED = """
from pulse.testing import Kit, Pulsed
import pulse
p = pulse.SyncPulse()
job = p.register("proof", lambda: 1)
with Kit() as kit:
    handle = job.enqueue()
    assert kit.drain() == {"completed": 1} and kit.result(handle) == 1
"""
# Proof that an extra, or none, brings what its part needs: a command of it, or a program.
PROOFS: dict[str, tuple[str, ...]] = {
    "": ("python", "-c", "import pulse.api, pulse.v1.pulse_pb2_grpc"),
    "server": ("pulsed", "--version"),
    "embedded": ("pulsed", "--version"),
    "cli": ("pulse", "version"),
    "ui": ("pulse-ui", "--version"),
    "testing": ("python", "-c", _TESTED),
    "otel": ("python", "-c", "import pulse.api, opentelemetry.trace"),
    "outbox": ("python", "-c", "import pulse.outbox, asyncpg"),
    "all": ("python", "-c", "import pulse_server.app, pulse_cli.program, pulse_ui.app"),
}


def build(*, tag: str | None = None) -> None:
    """Build and check both files. With the tag of a release the changelog must have the date of its version.

    Raises Problem with everything that is wrong.
    """
    versions.changelog_entry(versions.declared())
    if tag is not None:
        versions.check_release(tag)
    if stale := versions.stale():
        raise Problem(
            f"another version than {versions.declared()} stands in {'; '.join(stale)}. "
            f"Run: python3 dev.py version {versions.declared()}"
        )
    sdist, wheel = make_files(DIST)
    if problems := [*artifacts.problems_of_sdist(sdist), *artifacts.problems_of_wheel(wheel)]:
        raise Problem("\n  ".join(["the files are not fit for a release:", *problems]))
    say(f"built and checked {sdist.relative_to(ROOT)} and {wheel.relative_to(ROOT)}")
    check_installs(wheel, is_release=tag is not None)


def make_files(directory: Path) -> tuple[Path, Path]:
    """Build the sdist from the checkout, and the wheel from the sdist. Returns both."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    script = f"from hatchling.build import build_sdist; build_sdist({str(directory)!r})"
    _run("the sdist", [PYTHON, "-c", script])
    (sdist,) = directory.glob("*.tar.gz")
    # From the sdist, so that a file that it lacks is noticed. The build tool is that of .venv: no network.
    offline = ["--no-deps", "--no-build-isolation", "--no-cache-dir"]
    _run("the wheel", [PYTHON, "-m", "pip", "wheel", "--quiet", *offline, "--wheel-dir", directory, sdist])
    (wheel,) = directory.glob("*.whl")
    return sdist, wheel


def check_installs(wheel: Path, *, is_release: bool) -> None:
    """Install the bare wheel and each extra in fresh environments, on the oldest and the newest Python.

    Raises Problem for what fails, and for a release if there is one Python only.
    """
    pythons = oldest_and_newest()
    if len(pythons) < 2:
        alone = f"Python {' '.join(pythons)} is the only one here of {', '.join(SUPPORTED)}"
        remedy = "install another one, on the path or with pyenv"
        if is_release:
            raise Problem(f"{alone}, and a release is installed with two: {remedy}.")
        say(f"WARNING: {alone}. To install the wheel with two, {remedy}.")
    extras = ["", *PROJECT["project"]["optional-dependencies"]]
    with (
        tempfile.TemporaryDirectory(prefix="pulse-build-") as directory,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        cases = [*product(pythons, extras)]
        outcomes = pool.map(
            lambda case: check_install(
                wheel, case[1], pythons[case[0]], Path(directory, f"{case[0]}-{case[1]}")
            ),
            cases,
        )
        failed = []
        for (version, extra), problem in zip(cases, outcomes, strict=True):
            name = f"Python {version}, {f'extra {extra}' if extra else 'no extra'}"
            say(f"{'FAILED' if problem else 'ok':<8}{name}")
            if problem:
                failed.append(f"{name}: {problem}")
    if failed:
        raise Problem("\n".join(["the wheel does not install:", *failed]))


def check_install(wheel: Path, extra: str, python: Path, place: Path) -> str | None:
    """Install the wheel with one extra into a new environment, and use it. Returns what failed."""
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    inside = place / "bin" / "python"
    proof, *arguments = PROOFS[extra]
    steps: list[list[str | Path]] = [
        [python, "-m", "venv", place],
        [inside, "-m", "pip", "install", "--quiet", "--no-input", wanted],
        [inside, "-m", "pip", "check"],
        [place / "bin" / proof, *arguments],
    ]
    try:
        for step in steps:
            code, output = call(step)
            if code:
                return f"{' '.join(map(str, step))}\n{output.rstrip()}"
    finally:
        shutil.rmtree(place, ignore_errors=True)  # all of them at once would take gigabytes
    return None


def _run(what: str, command: Sequence[str | Path]) -> None:
    code, output = call(command)
    if code:
        raise Problem(f"{what} could not be built:\n{output.rstrip()}")
