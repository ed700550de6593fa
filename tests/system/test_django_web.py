"""A Django project enqueues after the commit, or in its transaction, under the usual web servers."""

from __future__ import annotations

import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import pulse
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.system.django_project import PATIENCE_SECONDS, SHOP, Project, until

PATIENCE = timedelta(seconds=PATIENCE_SECONDS)
GUNICORN = ("-m", "gunicorn", "--workers", "2", "--bind", "fd://{fd}", "--chdir", str(SHOP))
UVICORN = ("-m", "uvicorn", "--fd", "{fd}", "--app-dir", str(SHOP), "--log-level", "warning")
SERVERS = {
    "gunicorn": ((*GUNICORN, "site_of_shop.wsgi"), "/buy"),
    "gunicorn --preload": ((*GUNICORN, "--preload", "site_of_shop.wsgi"), "/buy"),
    "gunicorn --preload, an async view": ((*GUNICORN, "--preload", "site_of_shop.wsgi"), "/abuy"),
    "uvicorn": ((*UVICORN, "site_of_shop.asgi:application"), "/abuy"),
    "uvicorn, a sync view": ((*UVICORN, "site_of_shop.asgi:application"), "/buy"),
}


@pytest.fixture(scope="module")
def shared(databases: Databases, template_database: str) -> Iterator[tuple[str, str]]:
    """A database with the schema of pulse, and the address of its pulsed."""
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield dsn, address


@contextlib.contextmanager
def web_server(project: Project, *command: str) -> Iterator[str]:
    """Serve the project on a port that is open before the server starts: requests wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = [part.format(fd=listening.fileno()) for part in command]
        with project.running(*arguments, pass_fds=(listening.fileno(),)):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def get(url: str) -> dict[str, Any] | int:
    """Return the JSON of a page, or its status if it fails."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as response:
            found: dict[str, Any] = json.load(response)
            return found
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("server", "when"),
    [*((server, "on_commit") for server in SERVERS), ("gunicorn", "transaction"), ("uvicorn", "transaction")],
)
def test_job_exists_exactly_if_the_order_does(
    tmp_path: Path, shared: tuple[str, str], server: str, when: str
) -> None:
    dsn, address = shared
    command, page = SERVERS[server]
    topic = "asend-receipt" if page == "/abuy" else "send-receipt"
    project = Project(tmp_path, address, dsn, {"SHOP_PULSE": json.dumps({"ENQUEUE": when})})
    project.create_tables()
    with pulse.SyncPulse(address) as p:
        before = p.count_jobs(topic=topic).count
        with web_server(project, *command) as url:
            bought = [get(url + page) for _ in range(4)]
            assert get(f"{url}{page}?full") == 500
        jobs = [found["job"] for found in bought if isinstance(found, dict)]
        assert len(jobs) == 4, project.log
        assert p.count_jobs(topic=topic).count == before + 4
        assert {p.get_job(job).topic for job in jobs} == {topic}


def test_async_view_reads_a_job(tmp_path: Path, shared: tuple[str, str]) -> None:
    dsn, address = shared
    project = Project(tmp_path, address, dsn)
    with pulse.SyncPulse(address) as p, web_server(project, *SERVERS["uvicorn"][0]) as url:
        job = p.enqueue("unserved")
        assert [get(f"{url}/status/{job.id}") for _ in range(3)] == [{"status": "PENDING"}] * 3


def test_job_of_runserver_has_a_result(tmp_path: Path, shared: tuple[str, str]) -> None:
    _, address = shared
    project = Project(tmp_path, address)
    project.create_tables()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        project.running(SHOP / "manage.py", "runserver", "--noreload", str(port)),
        project.worker("--topics", "send-receipt"),
        pulse.SyncPulse(address) as p,
    ):
        project.await_log("Starting development server")

        def is_open() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        until(is_open, lambda: project.log)
        found = get(f"http://127.0.0.1:{port}/buy")
        assert isinstance(found, dict), project.log
        assert p.handle(found["job"]).result(PATIENCE)["receipts"] == 1
