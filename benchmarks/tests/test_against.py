"""Two commits are compared by turns, each with its own code, and with the spread beside each ratio."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import against
from benchmarks.against import Result, Side, in_order, measurable, unpacked
from benchmarks.comparison import WITHIN, Pair, as_table, direction, paired
from benchmarks.figures import Figure
from tests.rows import each_row
from tools.environment import Problem

PROJECT = '[project]\nname = "p"\nversion = "1"\ndependencies = ["a>=1"]\n'
BASE = Side("aaaaaaaa", "a" * 40, Path("/base"), Path(sys.executable))
OTHER = Side("working tree", "b" * 40, Path("/other"), Path(sys.executable))


def figures(name: str, unit: str, *turns: Sequence[float], system: str = "pulse") -> list[Mapping[str, Any]]:
    return [Figure("drain", name, unit, turn, system=system).as_dict() for turn in turns]


def pair(unit: str, base: list[float], other: list[float]) -> Pair:
    return Pair("pulse", "drain", "a rate", unit, base, other)


@each_row(
    "unit, better",
    [("jobs/s", "more"), ("steps/s", "more"), ("ms", "less"), ("µs/job", "less"), ("× plain", "")],
)
def test_unit_says_which_way_is_better(unit: str, better: str) -> None:
    assert direction(unit) == better


def test_values_of_all_turns_are_pooled_by_figure() -> None:
    (found,) = paired(figures("a", "ms", [2.0], [6.0], [4.0]), figures("a", "ms", [1.0], [3.0], [2.0]))
    assert (found.base, found.other) == ([2, 6, 4], [1, 3, 2])
    assert found.ratio == 0.5


@each_row(
    "unit, base, other, verdict",
    [
        ("jobs/s", [10.0, 12.0], [13.0, 14.0], "better"),
        ("jobs/s", [10.0, 12.0], [7.0, 9.0], "worse"),
        ("ms", [10.0, 12.0], [13.0, 14.0], "worse"),
        ("ms", [10.0, 12.0], [7.0, 9.0], "better"),
        ("ms", [10.0, 12.0], [12.0, 20.0], WITHIN),
        ("ms", [10.0, 30.0], [15.0, 20.0], WITHIN),
        ("× plain", [1.0, 1.1], [1.2, 1.3], "differs"),
        ("ms", [10.0], [12.0], "one value has no spread"),
        ("ms", [10.0], [], ""),
    ],
)
def test_verdict_is_given_only_where_the_spreads_do_not_overlap(
    unit: str, base: list[float], other: list[float], verdict: str
) -> None:
    assert pair(unit, base, other).verdict == verdict


def test_nothing_divided_by_nothing_is_no_ratio() -> None:
    assert pair("ms", [0.0], [0.0]).ratio is None
    assert pair("ms", [], [1.0]).ratio is None


def test_table_names_the_side_that_has_a_figure_alone() -> None:
    pairs = paired(figures("old", "ms", [1.0]), figures("new", "ms", [1.0], system="raw"))
    old, new = as_table(pairs, "aaaaaaaa", "working tree").splitlines()[2:]
    assert "| 1.00 (1.00 … 1.00) | – | – | only aaaaaaaa has it |" in old
    assert "| new [raw] |" in new
    assert "only working tree has it" in new


def test_order_changes_from_round_to_round() -> None:
    order = [side.name[0] for number in range(4) for side in in_order(BASE, OTHER, number)]
    assert "".join(order) == "awwaawwa"


def test_scenario_that_one_side_lacks_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {BASE.name: ["drain"], OTHER.name: ["drain", "burst"]}
    monkeypatch.setattr(against, "_scenarios", lambda side: known[side.name])
    result = Result()
    assert measurable(["burst", "drain"], BASE, OTHER, result) == ["drain"]
    assert result.remarks == ["aaaaaaaa has no scenario burst: it is not compared."]
    with pytest.raises(Problem, match="aaaaaaaa has no scenario burst"):
        measurable(["burst"], BASE, OTHER, Result())


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a commit, and a checkout that differs from it."""
    root = tmp_path / "repository"
    root.mkdir()

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=root, check=True)

    git("init", "--quiet")
    (root / "pyproject.toml").write_text(PROJECT)
    (root / ".gitignore").write_text("ignored\n")
    (root / "deleted").write_text("old")
    (root / "src").mkdir()
    (root / "src" / "changed").write_text("old")
    git("add", ".")
    git("commit", "--quiet", "-m", "old")
    monkeypatch.setattr(against, "ROOT", root)
    return root


def test_each_side_has_its_own_files(repository: Path, tmp_path: Path) -> None:
    (repository / "deleted").unlink()
    (repository / "src" / "changed").write_text("new")
    (repository / "src" / "added").write_text("new")
    (repository / "ignored").write_text("new")
    (tmp_path / "sides").mkdir()
    base, other = unpacked("HEAD", tmp_path / "sides")
    assert other.name == "working tree"
    assert _files(base.folder) == {".gitignore", "pyproject.toml", "deleted", "src/changed"}
    assert _files(other.folder) == {".gitignore", "pyproject.toml", "src/changed", "src/added"}
    assert (base.folder / "src/changed").read_text() == "old"
    assert (other.folder / "src/changed").read_text() == "new"


def test_clean_checkout_goes_by_its_commit(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "sides").mkdir()
    base, other = unpacked("HEAD", tmp_path / "sides")
    assert other.name == f"HEAD {base.name}"
    assert base.commit == other.commit


@each_row("commit", ["nonesuch", "--all", "HEAD:src", ""])
def test_unknown_commit_is_named_with_the_next_step(commit: str) -> None:
    with pytest.raises(Problem, match=r"there is no commit .* here\. List them with: git log"):
        unpacked(commit, Path("/nonexistent"))


def test_folder_that_is_no_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against, "ROOT", tmp_path)
    with pytest.raises(Problem, match="is no git repository"):
        unpacked("HEAD", tmp_path)


def test_side_with_other_requirements_gets_an_environment_of_its_own(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "pyproject.toml").write_text(PROJECT.replace("a>=1", "a>=2"))
    ran: list[Sequence[str | Path]] = []

    def run(line: Sequence[str | Path], *_: object) -> int:
        ran.append(line)
        return 0

    monkeypatch.setattr(against, "_run", run)
    (tmp_path / "sides").mkdir()
    base, other = unpacked("HEAD", tmp_path / "sides")
    assert [str(word) for word in ran[0][1:]] == [str(base.folder / "dev.py"), "setup"]
    assert base.python == base.folder / ".venv" / "bin" / "python"
    assert other.python == Path(sys.executable)


@each_row("words", [["--peers"], ["--report"], ["targets"], ["--rounds", "0"]])
def test_comparison_takes_no_options_of_the_page(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--against", "HEAD", *words])
    with pytest.raises(SystemExit):
        command.main()
    assert re.search("--against compares two commits|--rounds and --repeats are", capsys.readouterr().err)


def test_turns_get_the_options_of_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def compare(*arguments: object) -> int:
        given.extend(arguments)
        return 0

    monkeypatch.setattr(against, "compare", compare)
    words = ["drain", "drain", "submit", "--against", "abc", "--rounds", "6", "--jobs", "500", "--trial"]
    monkeypatch.setattr(sys, "argv", ["bench", *words, "--python", sys.executable])
    assert command.main() == 0
    assert given == ["abc", ["drain", "submit"], 6, ["--repeats=1", "--jobs=500", "--trial"], None]


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
