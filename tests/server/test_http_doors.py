"""Who may read the metrics, and over TLS: the HTTP port of a server with users and certificates."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pulse_server.access.service import LOGIN_BURST_PER_USER
from pulse_server.access.users import parse_users
from pulse_server.doors.ports import CERTIFICATE_LOOK_INTERVAL
from tests.rows import each_row
from tests.server.http_caller import Reply, get
from tests.server.pulsed_process import pulsed
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.tls_files import Authority, make_authority, names_shown

USERS = parse_users("alice:wonder land,viewer:only looks:viewer", "PULSE_AUTH_USERS")


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@asynccontextmanager
async def guarded(dsn: str, **settings: Any) -> AsyncIterator[str]:
    chosen = {"http_address": "127.0.0.1:0", "users": USERS, "metrics_need_login": True} | settings
    async with server_under_test(dsn, **chosen) as server:
        yield address_of(server)


def address_of(server: ServerUnderTest) -> str:
    address = server.app.observation.http_address
    assert address is not None
    return address


@pytest.fixture
async def address(database_dsn: str) -> AsyncIterator[str]:
    async with guarded(database_dsn) as address:
        yield address


async def metrics(address: str, *credentials: str) -> Reply:
    return await get(address, "/metrics", headers=basic(*credentials) if credentials else None)


async def test_caller_without_credentials_is_asked_for_them_and_learns_nothing(address: str) -> None:
    answer = await metrics(address)

    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert "pulse_" not in answer.text


@pytest.mark.parametrize(
    "credentials", [("alice", "wrong"), ("unknown", "wonder land"), ("alice", ""), ("", "")]
)
async def test_wrong_credentials_are_refused(address: str, credentials: tuple[str, str]) -> None:
    assert (await metrics(address, *credentials)).status == 401


@each_row("header", ["Bearer abc", "Basic", "Basic ???", "Basic YWxpY2U="])
async def test_authorization_that_cannot_be_read_is_refused(address: str, header: str) -> None:
    assert (await get(address, "/metrics", headers={"Authorization": header})).status == 401


@pytest.mark.parametrize("credentials", [("alice", "wonder land"), ("viewer", "only looks")])
async def test_any_user_may_read_whatever_its_role(address: str, credentials: tuple[str, str]) -> None:
    answer = await metrics(address, *credentials)

    assert answer.status == 200
    assert 'pulse_logins_total{result="ok"} 1\n' in answer.text


@each_row("path", ["/healthz", "/readyz"])
async def test_probes_need_no_login(address: str, path: str) -> None:
    assert (await get(address, path)).status == 200


async def test_guesses_are_throttled_with_the_time_to_wait(address: str) -> None:
    for _ in range(LOGIN_BURST_PER_USER):
        assert (await metrics(address, "alice", "guess")).status == 401
    answer = await metrics(address, "alice", "guess")

    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1


async def test_metrics_are_open_by_default(database_dsn: str) -> None:
    async with guarded(database_dsn, metrics_need_login=False) as address:
        assert (await metrics(address)).status == 200


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ours")


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem.decode())


async def test_port_speaks_tls_when_the_server_does(database_dsn: str, authority: Authority) -> None:
    async with guarded(database_dsn, tls=authority.server()) as address:
        answer = await get(
            address, "/metrics", headers=basic("alice", "wonder land"), tls=trusting(authority)
        )

        assert answer.status == 200


async def test_plain_text_is_not_answered_on_a_port_with_tls(database_dsn: str, authority: Authority) -> None:
    async with guarded(database_dsn, tls=authority.server()) as address:
        with pytest.raises((AssertionError, ConnectionError)):
            await get(address, "/healthz")

        assert (await get(address, "/healthz", tls=trusting(authority))).status == 200


async def test_probe_shows_no_certificate_where_workers_have_to(
    database_dsn: str, authority: Authority
) -> None:
    async with guarded(database_dsn, tls=authority.server(client_ca=authority.file)) as address:
        assert (await get(address, "/healthz", tls=trusting(authority))).status == 200


async def test_renewed_certificate_is_shown_here_too(
    database_dsn: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.ports.CERTIFICATE_LOOK_INTERVAL", 0 * CERTIFICATE_LOOK_INTERVAL)
    async with guarded(database_dsn, tls=authority.server("old.example.org", "127.0.0.1")) as address:
        assert "old.example.org" in await names_shown(address, authority)
        authority.server("new.example.org", "127.0.0.1")

        assert "new.example.org" in await names_shown(address, authority)


async def test_process_of_its_own_speaks_tls_and_asks_for_a_login(
    database_dsn: str, authority: Authority
) -> None:
    """With the event loop that pulsed has."""
    files = authority.server()
    async with pulsed(
        database_dsn,
        PULSE_HTTP_ADDR="127.0.0.1:0",
        PULSE_TLS_CERT=str(files.certificate),
        PULSE_TLS_KEY=str(files.key),
        PULSE_AUTH_USERS="alice:wonder land",
        PULSE_METRICS_AUTH="on",
    ) as server:
        address, tls = server.events[-1]["http_address"], trusting(authority)

        assert (await get(address, "/metrics", tls=tls)).status == 401
        answer = await get(address, "/metrics", headers=basic("alice", "wonder land"), tls=tls)
        assert answer.status == 200
        assert int(answer.headers["content-length"]) == len(answer.body)
        server.signal()
        assert await server.ended() == 0
        assert "wonder" not in server.log
