"""`manage.py pulse_worker` runs the handlers of a Django project, in threads, event loops and processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import pulse
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.system.django_project import PATIENCE_SECONDS, Project, until

HANDLERS = ("send-receipt", "asend-receipt", "send-receipt-apart")
PATIENCE = timedelta(seconds=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address


@pytest.fixture
def project(tmp_path: Path, address: str) -> Project:
    """With SQLite."""
    made = Project(tmp_path, address)
    made.create_tables()
    return made


def results(address: str, order: int) -> list[int]:
    with pulse.SyncPulse(address) as p:
        jobs = [p.enqueue(topic, {"order": order}) for topic in HANDLERS]
        return [job.result(PATIENCE)["receipts"] for job in jobs]


def test_handlers_of_every_app_run_with_django_set_up(project: Project, address: str) -> None:
    order = project.new_order()
    with project.worker("--concurrency", "4"):
        assert results(address, order) == [1, 1, 1]
    assert "Running site_of_shop.settings against" in project.log


def test_several_processes_have_django_set_up(project: Project, address: str) -> None:
    order = project.new_order()
    with project.worker("--processes", "2"):
        assert results(address, order) == [1, 1, 1]
    assert "worker-1" in project.log


def test_worker_is_started_again_when_a_file_changes(project: Project, address: str) -> None:
    order = project.new_order()
    with project.worker("--reload"):
        assert results(address, order) == [1, 1, 1]
        (project.directory / "new.py").write_text("")
        project.await_log("Reloading: new.py changed.")
        until(lambda: project.log.count("Running site_of_shop") == 2, lambda: project.log)
        assert results(address, order) == [1, 1, 1]


def test_worker_serves_only_the_topics_that_are_named(project: Project, address: str) -> None:
    with project.worker("--topics", "send-receipt"):
        project.await_log(f"against {address}: send-receipt. Ctrl-C")


def test_options_are_those_of_pulse_worker(project: Project) -> None:
    theirs = subprocess.run(
        [sys.executable, "-m", "pulse_cli", "worker", "--help"],
        env=project.environment,
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    ours = project.manage("pulse_worker", "--help").stdout
    own = theirs.partition("Options:")[2].partition("Examples:")[0].split()
    flags = [word for word in own if word.startswith("--") and word != "--help"]
    assert [flag for flag in flags if flag not in ours] == []


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--concurrency", "0"], "'0' is not a whole number from 1 to 10,000"),
        (["--topics", "send-recipe"], "The application has no handler for send-recipe; it has: "),
        (["--include", "orders.nothing"], "There is no module 'orders.nothing'"),
        (["--reload", "--processes", "2"], "--reload is for development"),
    ],
)
def test_option_that_cannot_be_used_is_refused_with_a_sentence(
    project: Project, flags: list[str], sentence: str
) -> None:
    ended = project.manage("pulse_worker", *flags)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


def test_unknown_key_of_the_setting_is_refused_with_the_key_that_was_meant(project: Project) -> None:
    ended = project.manage("pulse_worker", SHOP_PULSE=json.dumps({"ADDRES": "localhost:1"}))
    assert "The setting PULSE has no key 'ADDRES'. Did you mean ADDRESS?" in ended.stderr
