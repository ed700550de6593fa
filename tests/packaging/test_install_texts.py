"""No text names a package that cannot be installed: there is no release on an index yet."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pulse_cli.program import pulse
from tests.rows import each_row
from tools.declared import PROJECT

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
PARTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "deploy",
    "docs",
    "examples",
    "proto",
    "src",
    "tools",
]
TEXTS = {".in", ".html", ".md", ".proto", ".py", ".yaml", ".yml", ".example", ""}


def texts(part: str) -> Iterator[Path]:
    top = ROOT / part
    for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
        if path.is_file() and path.suffix in TEXTS and "__pycache__" not in path.parts:
            yield path


@each_row("part", PARTS)
def test_the_name_comes_with_an_address(part: str) -> None:
    by_name = re.compile(r"pulse-jobs(?:\[[\w,…]*\](?! @ )|['\"]?==)|pip install ['\"]?pulse-jobs(?!\[)")
    found = [path for path in texts(part) if by_name.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_page_has_every_extra() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert named == [*dict.fromkeys(named)]
    assert set(named) == set(PROJECT["project"]["optional-dependencies"])


def test_page_names_the_wheel_of_this_version() -> None:
    versions = set(re.findall(r"pulse_jobs-([\d.]+)-py3", PAGE))
    assert versions == {PROJECT["project"]["version"]}


def test_version_names_another_distribution_with_the_same_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, record in {
        "pulse_framework": "pulse/__init__.py,,\n../../../bin/pulse,,\n",
        "only_a_command": "other/__init__.py,,\n../../../bin/pulse,,\n",
        "pulsedive": "pulsedive/__init__.py,,\nother/pulse/__init__.py,,\n../../../bin/pulse-dive,,\n",
    }.items():
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n")
        (information / "RECORD").write_text(record)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    result = CliRunner().invoke(pulse, ["version"])

    assert result.exit_code == 0
    assert "only_a_command, pulse_framework installs a package or a command `pulse`" in result.output
    assert "pulsedive" not in result.output
