"""The benchmark knows how the Python that it runs on was built, or says that it does not."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks import optimized
from benchmarks.interpreters import Build, Interpreter, inspect, judge
from benchmarks.stand import Stand
from tests.rows import each_row
from tools.environment import Problem

DEBIAN = {
    "CONFIG_ARGS": "'--enable-shared' '--prefix=/usr' '--enable-ipv6'",
    "PY_CFLAGS": "-DNDEBUG -g -fwrapv -O2 -Wall",
}
PYENV = {"CONFIG_ARGS": "'--prefix=/home/ann/.pyenv/versions/3.11.7'", "PY_CFLAGS": "-DNDEBUG -g -O3 -Wall"}
# As python:3.12-slim has it, which the image of pulsed is made from.
OFFICIAL_IMAGE = {
    "CONFIG_ARGS": "'--build=x86_64-linux-gnu' '--enable-optimizations' '--enable-shared' '--with-lto'",
    "PY_CFLAGS": "-DNDEBUG -g -fwrapv -O3 -Wall",
}


@each_row(
    "variables, package, expected",
    [
        (OFFICIAL_IMAGE, None, (True, True)),
        (PYENV, None, (False, False)),
        (PYENV | {"CONFIG_ARGS": "'--enable-optimizations'"}, None, (True, False)),
        (PYENV | {"PY_CORE_CFLAGS": "-O3 -fprofile-use -fprofile-correction"}, None, (True, False)),
        (PYENV | {"PY_CFLAGS_NODIST": "-fprofile-instr-use=code.profclangd -flto=thin"}, None, (True, True)),
        (PYENV | {"CONFIG_ARGS": "'--prefix=/opt' '--with-lto=no'"}, None, (False, False)),
        (DEBIAN, "python3.11-minimal", (True, True)),
    ],
)
def test_build_is_read_from_what_the_interpreter_was_configured_with(
    variables: dict[str, str], package: str | None, expected: tuple[bool, bool]
) -> None:
    build = judge(variables, "x86_64", package)
    assert (build.has_pgo, build.has_lto) == expected


@each_row(
    "variables, architecture, package",
    [
        (DEBIAN, "x86_64", None),  # another distribution may remove the flags as Debian does
        ({}, "x86_64", None),
        (DEBIAN, "riscv64", "python3.11-minimal"),  # built for without PGO
    ],
)
def test_build_that_leaves_no_trace_is_unknown(
    variables: dict[str, str], architecture: str, package: str | None
) -> None:
    build = judge(variables, architecture, package)
    assert build.has_pgo is None
    assert str(build).startswith("build unknown: ")
    assert build.summary == "of unknown build"


def test_interpreter_of_a_virtual_environment_is_the_one_that_it_was_made_from() -> None:
    interpreter = inspect(sys.executable)
    assert interpreter is not None
    assert interpreter.version == ".".join(map(str, sys.version_info[:3]))
    assert interpreter.path == Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))


def test_program_that_is_no_python_is_none(tmp_path: Path) -> None:
    assert inspect("/bin/true") is None
    assert inspect(tmp_path / "missing") is None


def test_asking_for_a_python_that_is_none_says_what_to_name() -> None:
    with pytest.raises(Problem, match=r"is no Python 3\.11 or newer\. Name the program"):
        optimized.move("/bin/true")


def test_run_stays_on_the_interpreter_that_is_asked_for_if_it_is_there_already() -> None:
    optimized.move(sys.executable)  # returns: else this process would be another program now


def test_optimized_interpreter_is_moved_to_and_its_environment_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there = Interpreter(Path("/opt/python"), "3.11.9", Build(True, True, "its configure options"))
    here = Interpreter(Path("/usr/python"), "3.11.7", Build(False, False, "its configure options"))
    monkeypatch.setattr(optimized, "inspect", lambda _: here)
    monkeypatch.setattr(optimized, "find_optimized", lambda: there)
    made: list[Path] = []

    def make(folder: Path, lock: int, base: Path) -> None:
        assert base == there.path
        made.append(folder)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()

    moved: list[Path] = []
    monkeypatch.setattr(optimized, "make_virtualenv", make)
    monkeypatch.setattr(optimized, "install", lambda *_: None)
    monkeypatch.setattr(optimized, "_continue_on", moved.append)

    optimized.move(None)
    optimized.move(None)

    assert len(made) == 1
    assert made[0].is_relative_to(tmp_path / "pulse-bench" / "pythons")
    assert moved == [made[0] / "bin" / "python"] * 2


def test_servers_run_on_another_interpreter_within_the_block_only() -> None:
    stand = Stand("postgres://nowhere", 1)
    with stand.running_on(Path("/opt/python")):
        assert str(stand.python) == "/opt/python"
    assert str(stand.python) == sys.executable
