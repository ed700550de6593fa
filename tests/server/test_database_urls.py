"""DB_HOST as databases hand it out: every parameter of libpq, in both forms, and what is said of mistakes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from pulse_server.database.connector import Connector, Host, hosts_in
from pulse_server.database.urls import BadConnectionString, read_database_url
from pulse_server.settings import BadSettings
from pulse_server.settings.options import parse_database_url
from tests.rows import each_row
from tests.server.pulsed_process import pulsed, run_pulsed

CANARY = "kanarienvogel"
# Whatever libpq 18 knows and this machine can do without files: as a cloud's console might write it.
HANDED_OUT = {
    "application_name": "shop",
    "channel_binding": "require",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "fallback_application_name": "psql",
    "gssdelegation": "0",
    "gssencmode": "disable",
    "keepalives": "1",
    "keepalives_count": "3",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "krbsrvname": "postgres",
    "load_balance_hosts": "random",
    "max_protocol_version": "latest",
    "min_protocol_version": "3.0",
    "options": "-c geqo=off",
    "passfile": "/nonexistent/pgpass",
    "replication": "false",
    "require_auth": "scram-sha-256,none",
    "requirepeer": "postgres",
    "ssl_max_protocol_version": "TLSv1.3",
    "ssl_min_protocol_version": "TLSv1.2",
    "sslcertmode": "allow",
    "sslcompression": "0",
    "sslcrldir": "/nonexistent/crl",
    "sslmode": "prefer",
    "sslnegotiation": "postgres",
    "sslsni": "1",
    "target_session_attrs": "read-write",
    "tcp_user_timeout": "30000",
}


def with_parameters(dsn: str, parameters: dict[str, str]) -> str:
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    return f"{dsn}{'&' if urlsplit(dsn).query else '?'}{query}"


def as_pairs(dsn: str, parameters: dict[str, str]) -> str:
    """The same as key=value pairs."""
    parts = urlsplit(dsn)
    own = {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": parts.password}
    pairs = {name: str(value) for name, value in own.items() if value} | {"dbname": parts.path[1:]}
    pairs |= dict(parse_qsl(parts.query)) | parameters
    return " ".join(f"{name} = '{value}'" for name, value in pairs.items())


@pytest.mark.parametrize("form", [with_parameters, as_pairs])
async def test_server_starts_with_every_parameter_that_is_handed_out(
    database_dsn: str, form: Callable[[str, dict[str, str]], str]
) -> None:
    async with pulsed(form(database_dsn, HANDED_OUT)) as server:
        (entry,) = [line for line in server.events if line["event"] == "database_parameters_ignored"]

    assert {"channel_binding", "keepalives_idle", "requirepeer"} <= set(entry["parameters"])
    assert (
        "channel_binding is ignored: the driver has no channel binding; sslmode=verify-full" in entry["hint"]
    )
    assert entry["level"] == "warning"
    taken = {"connect_timeout", "options", "sslmode", "target_session_attrs", "passfile", "sslnegotiation"}
    assert not taken & set(entry["parameters"])


@each_row("name", sorted(HANDED_OUT))
def test_each_parameter_is_taken_in_both_forms(name: str) -> None:
    value = HANDED_OUT[name]

    for text in (f"postgres://u@h/d?{name}={quote(value)}", f"host=h user=u dbname=d {name}='{value}'"):
        assert parse_database_url(text, "DB_HOST") == text


async def test_options_reach_the_session(database_dsn: str) -> None:
    dsn = with_parameters(database_dsn, {"options": "-c geqo=off", "application_name": "shop"})
    session = await Connector(dsn).connect()

    assert await session.fetchval("SHOW geqo") == "off"
    await session.close(timeout=5)


def test_pairs_are_read_as_libpq_reads_them() -> None:
    read = read_database_url(r"host = 'db' port=6432 user=pulse password='it\'s a \\ b' dbname=jobs")

    parts = urlsplit(read.url)
    assert dict(parse_qsl(parts.query)) == {
        "host": "db",
        "port": "6432",
        "user": "pulse",
        "password": r"it's a \ b",
        "dbname": "jobs",
    }


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("host=a,b port=1,2 dbname=d", [("a", 1), ("b", 2)]),
        ("host=a,b port=,2 dbname=d", [("a", 5432), ("b", 2)]),
        ("host=::1 dbname=d", [("::1", 5432)]),
        ("hostaddr=10.0.0.1 dbname=d", [("10.0.0.1", 5432)]),
        ("host=/run/a port=5433", [("/run/a", 5433)]),
        ("postgres://u@/d?hostaddr=10.0.0.1,10.0.0.2", [("10.0.0.1", 5432), ("10.0.0.2", 5432)]),
    ],
)
def test_hosts_are_read_from_pairs(
    text: str, hosts: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPORT", raising=False)

    assert hosts_in(read_database_url(text).url) == tuple(Host(*host) for host in hosts)


def test_service_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "services"
    file.write_text(f"[jobs]\nhost=db1,db2\nuser=pulse\npassword={CANARY}%1\nchannel_binding=require\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))

    for text in ("postgres:///jobs?service=jobs&user=ada", "service=jobs user=ada dbname=jobs"):
        read = read_database_url(text)
        assert [host.name for host in hosts_in(read.url)] == ["db1", "db2"]
        query = dict(parse_qsl(urlsplit(read.url).query))
        assert (query["user"], query["password"]) == ("ada", f"{CANARY}%1")
        assert [entry.name for entry in read.ignored] == ["channel_binding"]
    with pytest.raises(
        BadConnectionString, match=r"names the service 'other', which cannot be read from .*services"
    ):
        read_database_url("service=other")


@each_row("parameters, seconds", [("", None), ("?connect_timeout=0", None), ("?connect_timeout=30", 30)])
def test_connect_timeout_is_taken(parameters: str, seconds: int | None) -> None:
    expected = timedelta(seconds=seconds) if seconds else None

    assert Connector(f"postgres://u@h/d{parameters}").connect_timeout == expected


@each_row("form", ["postgres://u@h/d?sslrootcert=system", "host=h sslrootcert=system sslmode=verify-full"])
def test_system_authorities_check_the_name_of_the_host(form: str) -> None:
    read = read_database_url(form)

    assert read.trusts_system
    assert "system" not in read.url


async def test_server_whose_certificate_no_authority_signed_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def offer_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        with suppress(ssl.SSLError, OSError):
            await writer.start_tls(context)
        writer.close()

    async with await asyncio.start_server(offer_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError):
            await Connector(f"postgres://u@localhost:{port}/d?sslrootcert=system").connect()


@each_row(
    "text, sentence",
    [
        (
            "postgres://u@h/d?supa=base-pooler.x",
            "has the parameter 'supa', which libpq does not know. Remove it",
        ),
        ("host=h nonsense=1", "has the parameter 'nonsense'"),
        ("postgres://u@h/d?pgbouncer=true", "has the parameter 'pgbouncer'.*PULSE_DB_POOLER=on"),
        ("postgres://u@h/d?statement_timeout=5", "'statement_timeout'.*options=-c%20name%3Dvalue"),
        ("postgres://u@h/d?sslmode=yes", "sslmode=yes: give one of disable, allow, prefer"),
        ("postgres://u@h/d?target_session_attrs=rw", "target_session_attrs=rw: give one of any, read-write"),
        ("postgres://u@h/d?connect_timeout=soon", "connect_timeout that is not a number of seconds"),
        ("postgres://u@h/d?gssencmode=require", "gssencmode=require: pulsed cannot encrypt with GSSAPI"),
        ("postgres://u@h/d?replication=database", "replication=database: pulsed needs ordinary sessions"),
        ("postgres://u@h/d?sslrootcert=system&sslmode=require", "needs sslmode=verify-full"),
        ("postgres://u@h/d?sslnegotiation=direct", "needs sslmode=require or stronger"),
        ("postgres://u@h/d?sslmode", "has the parameter 'sslmode' without a value"),
        ("postgres://u@h:x/d", "port that is not a number"),
        ("host=h password='open", "cannot be read as key=value pairs"),
        ("host=h user", "cannot be read as key=value pairs"),
        ("jdbc:postgresql://h/d", "must be a URL such as"),
    ],
)
def test_mistake_is_named(text: str, sentence: str) -> None:
    with pytest.raises(BadSettings, match=rf"DB_HOST {sentence}|DB_HOST .*{sentence}"):
        parse_database_url(text, "DB_HOST")


@each_row(
    "password, named",
    [
        ("p@ss/word#1", ["/ as %2F", "# as %23", "@ as %40"]),
        ("a/b", ["/ as %2F"]),
        ("12/34", ["/ as %2F"]),
        ("a?b", ["? as %3F"]),
        ("12?a=b", ["? as %3F"]),
        ("a#b", ["# as %23"]),
        ("a@b", ["@ as %40"]),
        ("a[b", ["[ as %5B"]),
    ],
)
def test_special_character_in_the_password_is_named(password: str, named: list[str]) -> None:
    with pytest.raises(BadSettings) as caught:
        parse_database_url(f"postgres://pulse:{password}@db.example:5432/jobs", "DB_HOST")

    assert "DB_HOST has a password with" in str(caught.value)
    assert [entry for entry in named if entry not in str(caught.value)] == []
    parse_database_url(f"postgres://pulse:{quote(password, safe='')}@db.example:5432/jobs", "DB_HOST")


@each_row(
    "text",
    [
        "postgres://me%40corp:p@h/d",
        "postgres:///d?user=me@corp&host=h",
        "postgres://h:5432/d?sslrootcert=/etc/ca.pem&user=me@corp",
        "postgres://u:a:b,c;d!e$f&g*h(i)=j+k@h/d",
        "postgres://u:100%25@[::1]:5432/d",
    ],
)
def test_what_libpq_takes_is_taken(text: str) -> None:
    assert parse_database_url(text, "DB_HOST") == text


def refusal_of(text: str) -> str:
    try:
        parse_database_url(text, "DB_HOST")
    except BadSettings as error:
        return str(error)
    return ""


@given(st.text(max_size=6), st.text(max_size=6))
def test_no_password_shows_in_any_sentence(before: str, after: str) -> None:
    secret = f"{before}{CANARY}{after}"
    for text in (f"postgres://u:{secret}@h:1/d", f"host=h password={secret}", f"host=h password='{secret}"):
        assert CANARY not in refusal_of(text)


async def test_check_and_start_name_the_same(database_dsn: str) -> None:
    dsn = with_parameters(database_dsn, {"channel_binding": "require"})
    bad = with_parameters(database_dsn, {"supa": "x"})
    (_, entry, _), (code, _, errors) = await asyncio.gather(
        run_pulsed("check", DB_HOST=dsn, PULSE_GRPC_ADDR="127.0.0.1:0"), run_pulsed(DB_HOST=bad)
    )

    assert "In DB_HOST, channel_binding is ignored" in " ".join(entry.split())
    assert code == 1
    assert "DB_HOST has the parameter 'supa'" in errors
