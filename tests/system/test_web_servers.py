"""Web applications that enqueue, under gunicorn (imported before or after the fork) and uvicorn."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import pulse
from tests.cli.serving import serving
from tests.postgres_cluster import Databases

PATIENCE_SECONDS = 60

FLASK_LIKE = """
import os
import pulse

p = pulse.SyncPulse()

def app(environ, start_response):
    job = p.enqueue("visit", {"path": environ["PATH_INFO"]})
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{job.id} {os.getpid()} {os.getppid()}".encode()]
"""

STARLETTE = """
import os
import pulse
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

p = pulse.Pulse()

async def visit(request):
    job = await p.enqueue("visit", {"path": request.url.path})
    return PlainTextResponse(f"{job.id} {os.getpid()} {os.getppid()}")

app = Starlette(routes=[Route("/{rest:path}", visit)])
"""

GUNICORN = ("-m", "gunicorn", "--workers", "2", "--bind", "fd://{fd}")
UVICORN = ("-m", "uvicorn", "--workers", "2", "--fd", "{fd}", "--log-level", "warning")


@pytest.fixture(scope="module")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address


@contextlib.contextmanager
def web_server(directory: Path, source: str, address: str, *command: str) -> Iterator[str]:
    """Serve the application on a port that is open before the server starts: requests wait for it."""
    (directory / "site_of_the_shop.py").write_text(source)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = [part.format(fd=listening.fileno()) for part in command]
        with subprocess.Popen(
            [sys.executable, *arguments, "site_of_the_shop:app"],
            cwd=directory,
            env={**os.environ, "PULSE_ADDR": address, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=(listening.fileno(),),
        ) as process:
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def visit(url: str, path: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/{path}", timeout=PATIENCE_SECONDS) as response:
        return response.read().decode().split()


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (FLASK_LIKE, GUNICORN),
        (FLASK_LIKE, (*GUNICORN, "--preload")),
        (FLASK_LIKE, (*GUNICORN, "--preload", "--threads", "4")),
        (STARLETTE, UVICORN),
    ],
    ids=["gunicorn", "gunicorn --preload", "gunicorn --preload --threads", "uvicorn --workers"],
)
def test_every_process_of_a_web_server_enqueues(
    tmp_path: Path, address: str, source: str, command: tuple[str, ...]
) -> None:
    with web_server(tmp_path, source, address, *command) as url, pulse.SyncPulse(address) as p:
        seen: dict[str, str] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(set(seen.values())) < 2:
            assert time.monotonic() < deadline, "one process serves all requests"
            job_id, process, _ = visit(url, f"page-{len(seen)}")
            seen[job_id] = process
        assert {p.get_job(job_id).topic for job_id in list(seen)[:20]} == {"visit"}
        assert len(seen) == len(set(seen))


def test_client_that_was_used_before_the_fork_is_refused_with_a_sentence(
    tmp_path: Path, address: str
) -> None:
    """gRPC does not survive a fork once it was used. A request must not hang, nor the process crash."""
    source = FLASK_LIKE.replace("p = pulse.SyncPulse()", 'p = pulse.SyncPulse()\np.enqueue("visit", {})')
    source = source.replace(
        '    job = p.enqueue("visit", {"path": environ["PATH_INFO"]})\n',
        "    try:\n"
        '        job = p.enqueue("visit", {"path": environ["PATH_INFO"]})\n'
        "    except pulse.ClientClosed as error:\n"
        '        start_response("200 OK", [])\n'
        "        return [error.message.encode()]\n",
    )
    with web_server(tmp_path, source, address, *GUNICORN, "--preload") as url:
        assert "forked after a client was used" in " ".join(visit(url, "page"))
