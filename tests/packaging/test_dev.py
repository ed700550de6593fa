"""dev.py, as a stranger meets it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.environment import child_environment

ROOT = Path(__file__).resolve().parents[2]


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "dev.py", *arguments], capture_output=True, text=True)


def test_dev_parses_on_pythons_too_old_to_run_it() -> None:
    """Else such a Python shows a SyntaxError instead of the sentence that tells what to do."""
    ast.parse((ROOT / "dev.py").read_text(encoding="utf-8"), feature_version=(3, 7))


def test_dev_without_arguments_explains_every_command() -> None:
    result = dev()
    assert result.returncode == 0
    for command in ("setup", "demo", "test", "lint", "bench", "chaos", "docs", "proto", "screenshots"):
        assert f"\n  {command} " in result.stdout


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
