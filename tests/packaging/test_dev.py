"""dev.py in a fresh clone."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.environment import child_environment
from tools.tiers import FIRST_FOLDERS, LONG_ELSEWHERE, LONG_FILES, LONG_FOLDERS, PURE_FOLDERS

ROOT = Path(__file__).resolve().parents[2]


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "dev.py", *arguments], capture_output=True, text=True)


def test_dev_parses_on_pythons_too_old_to_run_it() -> None:
    """Else such a Python shows a SyntaxError instead of the message that states what to do."""
    ast.parse((ROOT / "dev.py").read_text(encoding="utf-8"), feature_version=(3, 7))


def test_dev_without_arguments_explains_every_command() -> None:
    result = dev()
    assert result.returncode == 0
    known = re.search(r"Known are: (.*)\.", dev("tset").stderr)
    assert known
    assert [name for name in known[1].split(", ") if f"\n  {name} " not in result.stdout] == []


def test_unknown_command_names_the_known_ones() -> None:
    result = dev("tset")
    assert result.returncode == 1
    assert "'tset'" in result.stderr
    assert "setup, demo, test" in result.stderr


def test_flag_that_a_command_does_not_know_is_refused_before_any_work() -> None:
    result = dev("lint", "--fxi")
    assert result.returncode == 1
    assert "'--fxi'" in result.stderr


def test_other_virtual_environments_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "PIP_TARGET"):
        monkeypatch.setenv(name, "elsewhere")
    assert "elsewhere" not in child_environment().values()


def test_ci_entry_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_pre_commit_fetches_nothing_and_runs_what_is_there() -> None:
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repository["repo"] for repository in configuration["repos"]} == {"local"}
    hooks = [hook for repository in configuration["repos"] for hook in repository["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    ours = [hook["entry"].split()[2] for hook in hooks if hook["entry"].startswith("python3 dev.py ")]
    others = [hook["entry"] for hook in hooks if not hook["entry"].startswith("python3 dev.py ")]
    assert all(f"\n  {command} " in dev().stdout for command in ours)
    assert all(entry.startswith(".venv/bin/python -m ruff ") for entry in others)


def test_every_folder_of_tests_is_in_one_tier() -> None:
    files = list((ROOT / "tests").glob("*/**/test_*.py"))
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in files}
    assert sorted([*FIRST_FOLDERS, *LONG_FOLDERS]) == sorted(folders)
    assert set(PURE_FOLDERS) <= set(FIRST_FOLDERS)


def test_files_of_the_long_tier_exist_in_folders_of_the_first() -> None:
    assert [name for name in LONG_FILES if not (ROOT / "tests" / name).is_file()] == []
    assert [place for place in LONG_ELSEWHERE if not (ROOT / place).exists()] == []
    assert {Path(name).parts[0] for name in LONG_FILES} <= set(FIRST_FOLDERS)
    assert sorted(set(LONG_FILES)) == list(LONG_FILES)


def test_pure_tests_use_no_database_and_start_no_process() -> None:
    files = [path for folder in PURE_FOLDERS for path in (ROOT / "tests" / folder).rglob("*.py")]
    impure = re.compile(r"subprocess|database_dsn|Databases|tests\.(system|postgres)\b")
    assert [path.name for path in files if impure.search(path.read_text("utf-8"))] == []


def test_contributing_lists_the_folders_of_the_pure_and_the_long_tier() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(
        r"`--quick` runs ((?:`\w+`[\s,and]*)+).*?`--all` adds ((?:`\w+`[\s,and]*)+)", page, re.DOTALL
    )
    assert found
    pure, long = (re.findall(r"`(\w+)`", part) for part in found.groups())
    assert (pure, long) == (list(PURE_FOLDERS), list(LONG_FOLDERS))
