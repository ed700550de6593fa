"""Facts about a Django project, tested in a process of its own: Django has one set of settings in each."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.command_line import SOURCES
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.sdk.libraries import facts_of

ROOT = SOURCES.parent
PROJECT = Path(__file__).parent / "tasks_site"
FILES = sorted(PROJECT.glob("facts_of_*.py"))


def names() -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each fact."""
    for file in FILES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield file.stem, node.name


def outcomes(databases: Databases, template: str, directory: Path) -> dict[tuple[str, str], str]:
    """Test all facts against a server of their own. Returns the failure of each fact, or an empty text."""
    report = directory / "report.xml"
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={ROOT}"]
    with databases.temporary(template) as dsn, serving(dsn) as address:
        facts = facts_of(dsn)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *FILES],
            env={name: value for name, value in os.environ.items() if not name.startswith("PULSE_")}
            | {
                "DJANGO_SETTINGS_MODULE": "tests.system.tasks_site.settings",
                "PGDATABASE": facts["dbname"],
                "PGHOST": facts["host"],
                "PGPASSWORD": facts["password"],
                "PGPORT": facts["port"],
                "PGUSER": facts["user"],
                "PROJECT_PULSE": address,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}",
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if not report.exists():
        pytest.fail(ran.stdout + ran.stderr)
    found: dict[tuple[str, str], str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        fact = case.get("classname", "").rpartition(".")[2], case.get("name", "").partition("[")[0]
        problems = (each.text or "" for each in case if each.tag in ("failure", "error"))
        found[fact] = found.get(fact, "") + "".join(problems)
    return found
