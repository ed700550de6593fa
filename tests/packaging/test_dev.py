"""dev.py in a fresh clone."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.checks import QUICK_FOLDERS
from tools.environment import child_environment

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


def test_contributing_lists_every_folder_of_tests_as_quick_or_left_out() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(
        r"`--quick` runs ((?:`\w+`[\s,and]*)+).*?leaves out ((?:`\w+`[\s,and]*)+)", page, re.DOTALL
    )
    assert found
    quick, left_out = (re.findall(r"`(\w+)`", part) for part in found.groups())
    assert set(quick) == set(QUICK_FOLDERS)
    folders = {
        path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")
    }
    assert sorted([*quick, *left_out]) == sorted(folders)


def test_quick_tests_start_no_process() -> None:
    """Postgres aside, which is that of the test run."""
    files = [path for folder in QUICK_FOLDERS for path in (ROOT / "tests" / folder).rglob("*.py")]
    started = [
        path.name for path in files if re.search(r"subprocess|tests\.system\.stage", path.read_text("utf-8"))
    ]
    assert started == []
