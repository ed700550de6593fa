"""What Kubernetes, Docker and Prometheus ask of a server is answered by a real one."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from tests.deploy.deployment_files import DEPLOY, manifest
from tests.server.pulsed_process import pulsed

HEALTHCHECK = DEPLOY / "healthcheck.py"
CONTAINER = manifest("Deployment", "pulsed")["spec"]["template"]["spec"]["containers"][0]


async def status_of(path: str, socket: Path) -> int:
    """Ask for the path over the unix socket. Returns the status of the answer."""
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def health(**environment: str) -> tuple[int, str]:
    """Run the health check of the image. Returns its exit code and what it says."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PULSE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        HEALTHCHECK,
        env=inherited | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@asynccontextmanager
async def one_answer(line: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A port that answers every request with this status line. Yields its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(line + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "http.sock"


async def test_probes_and_scrapes_are_answered(database_dsn: str, socket: Path) -> None:
    annotations = manifest("Deployment", "pulsed")["spec"]["template"]["metadata"]["annotations"]
    (scraped,) = manifest("ServiceMonitor", "pulsed")["spec"]["endpoints"]
    async with pulsed(database_dsn, PULSE_HTTP_ADDR=f"unix:{socket}") as server:
        while not any(event["event"] == "readiness" and event["ready"] for event in server.events):
            await server.wait_for("readiness")
        assert await status_of(CONTAINER["livenessProbe"]["httpGet"]["path"], socket) == 200
        assert await status_of(CONTAINER["readinessProbe"]["httpGet"]["path"], socket) == 200
        assert await status_of(annotations["prometheus.io/path"], socket) == 200
        assert await status_of(scraped["path"], socket) == 200
        assert (await health(PULSE_HTTP_ADDR=f"unix:{socket}"))[0] == 0


async def test_health_check_of_the_image_follows_the_answer() -> None:
    async with one_answer(b"HTTP/1.1 200 OK") as address:
        assert (await health(PULSE_HTTP_ADDR=address))[0] == 0
        # Listening everywhere is asked for on the loopback.
        assert (await health(PULSE_HTTP_ADDR=f":{address.partition(':')[2]}"))[0] == 0
    async with one_answer(b"HTTP/1.1 503 Service Unavailable") as address:
        assert (await health(PULSE_HTTP_ADDR=address))[0] == 1


async def test_health_check_of_the_image_asks_over_tls_when_the_server_speaks_it() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("pulsed.example.com").configure_cert(context)
    async with one_answer(b"HTTP/1.1 200 OK", context) as address:
        code, text = await health(PULSE_HTTP_ADDR=address, PULSE_TLS_CERT="tls.crt", PULSE_TLS_KEY="tls.key")
    assert (code, text) == (0, "\n")


async def test_health_check_of_the_image_says_why_it_cannot_ask(tmp_path: Path) -> None:
    assert await health() == (1, "PULSE_HTTP_ADDR is not set, so there is no health page.\n")
    code, text = await health(PULSE_HTTP_ADDR=f"unix:{tmp_path}/missing.sock")
    assert code == 1
    assert "does not answer" in text
    assert "Traceback" not in text
