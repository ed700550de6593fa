"""The pages for frameworks, and for people who come from Celery: their programs run."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import pulse
from tests.docs.pages import ROOT, Page
from tests.docs.reader import PATIENCE_SECONDS, await_fact
from tests.docs.test_how_to import HOW_TO, follow, plugins_alone
from tests.ports import reserved_address


def test_task_of_the_page_about_celery_is_called_as_before(tmp_path: Path, address: str) -> None:
    follow("from-celery.md", tmp_path, PULSE_ADDR=address)


def test_application_of_the_page_about_fastapi_runs_with_a_worker_outside_and_inside(
    tmp_path: Path, address: str
) -> None:
    with reserved_address() as site:
        port = site.rpartition(":")[2]
        follow("fastapi.md", tmp_path, PULSE_ADDR=address, UVICORN_PORT=port, **plugins_alone())


def test_site_of_the_page_about_flask_runs(tmp_path: Path, address: str) -> None:
    follow("flask.md", tmp_path, PULSE_ADDR=address, **plugins_alone())


# ---------------------------------------------------------------- gunicorn


@contextmanager
def gunicorn(directory: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the site of the page about Flask as the page says. Yields the process and its address."""
    for block in Page(HOW_TO / "flask.md").blocks:
        if block.program:
            (directory / block.program).write_text(block.text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "GUNICORN_CMD_ARGS": "--bind 127.0.0.1:0"}
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn_worker.py", "site_app:app"]
    with subprocess.Popen(
        command, cwd=directory, env=environment | variables, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            listening = next(line for line in process.stderr if "Listening at" in line)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            found = re.search(r"http://[\d.:]+", listening)
            assert found
            yield process, found[0]
        finally:
            process.kill()


@pytest.mark.parametrize("arguments", ["", " --preload"])
def test_worker_inside_gunicorn_runs_jobs_and_drains(tmp_path: Path, address: str, arguments: str) -> None:
    options = f"--bind 127.0.0.1:0 --workers 2{arguments}"
    with (
        gunicorn(tmp_path, PULSE_ADDR=address, GUNICORN_CMD_ARGS=options) as (process, site),
        pulse.SyncPulse(address) as p,
    ):
        with urllib.request.urlopen(urllib.request.Request(f"{site}/albums/3", method="POST")) as answer:
            job = p.handle(json.load(answer)["id"])
        with urllib.request.urlopen(f"{site}/jobs/{job.id}/events", timeout=PATIENCE_SECONDS) as events:
            assert b'{"status": "COMPLETED"' in events.read()
        with urllib.request.urlopen(urllib.request.Request(f"{site}/albums/30", method="POST")) as answer:
            running = p.handle(json.load(answer)["id"])
        await_fact(lambda: p.get_job(running.id).status is pulse.JobStatus.RUNNING, lambda: "the job runs")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        drained = p.get_job(running.id)
        assert (drained.status, drained.attempts) == (pulse.JobStatus.COMPLETED, 1)


# ---------------------------------------------------------------- structlog and Sentry


@pytest.fixture
def sentry() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that keeps the check-ins that are sent to it. Yields its DSN and the check-ins."""
    kept: list[dict[str, Any]] = []

    class Kept(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            lines = [json.loads(line) for line in body.splitlines() if line]
            kept.extend(item for head, item in itertools.pairwise(lines) if head.get("type") == "check_in")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Kept) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://key@127.0.0.1:{server.server_port}/1", kept
        server.shutdown()


def test_logs_and_check_ins_of_the_page_about_structlog_and_sentry(
    tmp_path: Path, address: str, sentry: tuple[str, list[dict[str, Any]]]
) -> None:
    dsn, check_ins = sentry
    follow("structlog-and-sentry.md", tmp_path, PULSE_ADDR=address, SENTRY_DSN=dsn)
    for monitor, statuses, cron in (
        ("nightly", ["in_progress", "in_progress", "ok"], "0 2 * * *"),
        ("hourly", ["in_progress", "error"], "0 * * * *"),
    ):
        own = [check_in for check_in in check_ins if check_in["monitor_slug"] == monitor]
        assert [check_in["status"] for check_in in own] == statuses
        assert len({check_in["check_in_id"] for check_in in own}) == 1
        assert own[0]["monitor_config"]["schedule"] == {"type": "crontab", "value": cron}
