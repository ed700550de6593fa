"""Two commits by turns on one machine: `dev.py bench NAMES --against COMMIT`.

Each side is a folder of its own with its own src and benchmarks, so that a change of the checkout during a
long run changes nothing. A turn is one scenario on one side, in a process of its own with a fresh Postgres.
The order changes from round to round, because the second of two runs is slower.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.comparison import Pair, as_table, paired
from benchmarks.interpreters import inspect
from tools.environment import ROOT, Problem, child_environment, say

# A turn that was interrupted stops its servers and its Postgres by itself; what is left then is killed.
_END_SECONDS = 60
_LAST_LINES = 12
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Prints the scenarios of a side, and where its packages are imported from.
_PROBE = """
import importlib, json, sys
from benchmarks.__main__ import SCENARIOS
files = [importlib.import_module(name).__file__ for name in ("benchmarks", *sys.argv[1:])]
print(json.dumps({"scenarios": list(SCENARIOS), "files": files}))
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two commits, unpacked into a folder."""

    name: str
    commit: str
    folder: Path
    python: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its processes. The path outranks `pulse` as .venv has it installed."""
        path = os.pathsep.join([str(self.folder / "src"), str(self.folder)])
        scratch = self.folder.parent / "tmp"
        scratch.mkdir(exist_ok=True)
        return child_environment(self.python) | {"PYTHONPATH": path, "TMPDIR": str(scratch)}


@dataclass(slots=True)
class Result:
    """The figures of all turns of both sides, and what could not be measured."""

    base: list[Mapping[str, Any]] = field(default_factory=list)
    other: list[Mapping[str, Any]] = field(default_factory=list)
    machine: Mapping[str, Any] = field(default_factory=dict)
    disturbed_runs: int = 0
    remarks: list[str] = field(default_factory=list)

    @property
    def pairs(self) -> list[Pair]:
        return paired(self.base, self.other)


def compare(
    commit: str, names: Sequence[str], rounds: int, options: Sequence[str], into: Path | None = None
) -> int:
    """Measure both sides by turns and print the comparison. Returns the exit code: 1 if a turn failed.

    An interrupt ends the turn, removes the folders and prints the turns that were finished.
    """
    for fatal in _SIGNALS:
        signal.signal(fatal, signal.default_int_handler)
    result, code, sides = Result(), 0, ("", "")
    with tempfile.TemporaryDirectory(prefix="pulse-against-", ignore_cleanup_errors=True) as folder:
        try:
            base, other = unpacked(commit, Path(folder))
            sides = base.name, other.name
            known = measurable(names, base, other, result)
            for number in range(rounds):
                for name in known:
                    for side in in_order(base, other, number):
                        say(f"round {number + 1} of {rounds}: {name}, {side.name}")
                        _take(
                            side, name, number, options, result, result.base if side is base else result.other
                        )
        except KeyboardInterrupt:
            result.remarks.append("Interrupted: these are the turns that were finished.")
            code = 130
    if pairs := result.pairs:
        print(as_table(pairs, *sides))
    if result.disturbed_runs:
        result.remarks.append(f"Others used the machine in {result.disturbed_runs} of the runs that count.")
    for remark in result.remarks:
        print(remark, file=sys.stderr)
    if into and pairs:
        into.write_text(
            json.dumps(_document(result, base, other, rounds), indent=2, ensure_ascii=False) + "\n"
        )
    has_failed = any(remark.startswith("FAILED") for remark in result.remarks)
    return code or int(has_failed)


def in_order(base: Side, other: Side, number: int) -> tuple[Side, Side]:
    """Return who is first in a round: the base in the first, the other in the second, and so on."""
    return (base, other) if number % 2 == 0 else (other, base)


def unpacked(commit: str, folder: Path) -> tuple[Side, Side]:
    """Unpack the commit, and the checkout as it is now. Problem if there is no such commit."""
    if _git("rev-parse", "--is-inside-work-tree").returncode:
        raise Problem(f"{ROOT} is no git repository, so it has no commits to compare with. Clone pulse.")
    base = _resolved(commit)
    if base is None:
        raise Problem(
            f"there is no commit {commit!r} here. List them with: git log --oneline. "
            "A shallow clone lacks the older ones: git fetch --unshallow"
        )
    head = _resolved("HEAD") or ""
    is_clean = not _git("status", "--porcelain").stdout
    before, after = folder / "base", folder / "other"
    index = {"GIT_INDEX_FILE": str(folder / "index")}
    for command in (["read-tree", base], ["checkout-index", "--all", f"--prefix={before}/"]):
        if (done := _git(*command, variables=index)).returncode:
            raise Problem(f"{commit} cannot be unpacked: {done.stderr.strip()}")
    _copy_checkout(after)
    return (
        Side(base[:8], base, before, _python_for(before)),
        Side(f"HEAD {head[:8]}" if is_clean else "working tree", head, after, Path(sys.executable)),
    )


def measurable(names: Sequence[str], base: Side, other: Side, result: Result) -> list[str]:
    """Return the scenarios that both sides have. Problem if there are none."""
    known = {side.name: _scenarios(side) for side in (base, other)}
    for name in names:
        for side, scenarios in known.items():
            if name not in scenarios:
                result.remarks.append(f"{side} has no scenario {name}: it is not compared.")
    found = [name for name in names if all(name in scenarios for scenarios in known.values())]
    if not found:
        raise Problem(" ".join(result.remarks) or "no scenario was named")
    return found


def _scenarios(side: Side) -> list[str]:
    """Return its scenarios. Problem if it would not import its own code."""
    packages = [found.parent.name for found in sorted((side.folder / "src").glob("*/__init__.py"))]
    done = subprocess.run(
        [side.python, "-c", _PROBE, *packages],
        cwd=side.folder,
        env=side.variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Problem(f"the benchmarks of {side.name} do not start: {_last_line(done.stderr)}")
    found = json.loads(done.stdout)
    for file in found["files"]:
        if not Path(file).resolve().is_relative_to(side.folder.resolve()):
            raise Problem(f"{side.name} would be measured with {file}, which is not its own.")
    scenarios: list[str] = found["scenarios"]
    return scenarios


def _take(
    side: Side,
    name: str,
    number: int,
    options: Sequence[str],
    result: Result,
    figures: list[Mapping[str, Any]],
) -> None:
    """Run one scenario on one side and add its figures."""
    written = side.folder.parent / "turn.json"
    written.unlink(missing_ok=True)
    log = side.folder.parent / "turn.log"
    command: list[str | Path] = [side.python, "-m", "benchmarks", name, *options]
    command += ["--json", str(written)]
    if (side.folder / "benchmarks" / "optimized.py").exists():  # else it moves to no other interpreter
        command += ["--python", str(side.python)]
    # Equal for the two turns of a round.
    variables = side.variables | {"PYTHONHASHSEED": str(number + 1)}
    code = _run(command, side.folder, variables, log)
    try:
        document = json.loads(written.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        said = "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        result.remarks.append(f"FAILED: {name} on {side.name} ended with {code} and no figures:\n{said}")
        return
    figures.extend(document["figures"])
    result.machine = document["machine"]
    result.disturbed_runs += document.get("disturbed_runs", 0)
    for verdict in document.get("verdicts", ()):
        if verdict["is_good"] is False and verdict["reason"].startswith("it failed"):
            result.remarks.append(f"FAILED: {name} on {side.name}: {verdict['reason']}")


def _run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], log: Path) -> int:
    """Run a command to its end. Whatever ends this call, no process of the command stays."""
    with log.open("w") as output:
        with _signals_noted() as noted:
            # In a session of its own: Ctrl-C reaches it once, through us, and its group is what it started.
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            if noted:
                raise KeyboardInterrupt
            return process.wait()
        except BaseException:
            with _signals_noted():
                say("ending the turn ...")
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS)
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Within the block, note the signals that end this process instead of raising KeyboardInterrupt.

    A process that was started and is not yet known could not be ended.
    """
    noted: list[int] = []
    handlers = {number: signal.signal(number, lambda got, _: noted.append(got)) for number in _SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _resolved(commit: str) -> str | None:
    done = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    return done.stdout.strip() if done.returncode == 0 else None


def _copy_checkout(folder: Path) -> None:
    """Copy what git tracks or would track: changes that are not committed are part of it."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for name in filter(None, dict.fromkeys(listed.split("\0"))):
        source, copy = ROOT / name, folder / name
        if source.is_file():  # else deleted, and not committed
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def _python_for(folder: Path) -> Path:
    """Return an interpreter with the packages of a side: this one, or one that its own dev.py sets up."""
    if _requirements(folder) == _requirements(ROOT):
        return Path(sys.executable)
    say("its requirements differ from those of the checkout: setting up an environment for it ...")
    here = inspect(sys.executable)
    log = folder.parent / "setup.log"
    command: list[str | Path] = [here.path if here else sys.executable, folder / "dev.py", "setup"]
    if _run(command, folder, child_environment(), log):
        raise Problem(f"its environment cannot be set up: {_last_line(log.read_text(errors='replace'))}")
    return folder / ".venv" / "bin" / "python"


def _requirements(folder: Path) -> list[Any]:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"that commit has no benchmarks: {error}") from error
    locks = [path.read_text() for path in sorted((folder / "requirements").glob("*.lock"))]
    tables = [project["project"].get(name) for name in ("dependencies", "optional-dependencies")]
    return [*tables, project.get("dependency-groups"), *locks]


def _git(*arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise Problem("git is not installed, and --against needs it.") from error


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was printed"])[-1]


def _document(result: Result, base: Side, other: Side, rounds: int) -> dict[str, Any]:
    return {
        "base": {"name": base.name, "commit": base.commit},
        "other": {"name": other.name, "commit": other.commit},
        "rounds": rounds,
        "machine": dict(result.machine),
        "disturbed_runs": result.disturbed_runs,
        "remarks": result.remarks,
        "figures": [pair.as_dict() for pair in result.pairs],
    }
