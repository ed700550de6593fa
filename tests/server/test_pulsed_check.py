"""`pulsed check`: what is told of a configuration, and that nothing else happens."""

import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from pulse_server.checks import checking
from pulse_server.checks import database as database_checks
from pulse_server.checks.listing import shown_url
from pulse_server.embedded import binaries
from pulse_server.main import main
from pulse_server.postgres.database import Database
from pulse_server.settings import OPTIONS, Settings
from tests.postgres_cluster import Databases
from tests.server.pulsed_process import run_pulsed
from tests.server.roles import as_role

CANARY = "tweety-4711"
HASH = "$2b$04$B/b9WYlTsjl9I7JHXA.wUeaEhq5sw7iTPEG/BTrb49PqPxFEH8CR6"

Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run `pulsed check` with these variables. Returns the exit code and the output as one long line."""

    def run(*flags: str, **environment: str) -> tuple[int, str]:
        for name in [name for name in os.environ if name.startswith(("PULSE_", "DB_"))]:
            monkeypatch.delenv(name)
        for name, value in {"PULSE_GRPC_ADDR": "127.0.0.1:0", **environment}.items():
            monkeypatch.setenv(name, value)
        if "@127.0.0.1:1/" in environment.get("DB_HOST", ""):
            # No server listens there.
            monkeypatch.setattr("pulse_server.checks.database.CHECK_PATIENCE", timedelta(milliseconds=1))
        code = main(["check", *flags])
        told = capsys.readouterr()
        assert told.err == ""
        return code, " ".join(told.out.split())

    return run


def with_password(dsn: str, password: str) -> str:
    parts = urlsplit(dsn)
    user, _, host = parts.netloc.partition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{host}"))


@contextmanager
def listening() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


# ------------------------------------------------------------ the whole


async def test_good_configuration_is_said_to_be_one(database_dsn: str) -> None:
    code, output, errors = await run_pulsed(
        "check", "--processes", "2", DB_HOST=database_dsn, PULSE_GRPC_ADDR="127.0.0.1:0", PULSE_LEASE_TTL="1m"
    )
    assert (code, errors) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}
    assert rows["PULSE_PROCESSES"] == ["2", "flag"]
    assert rows["PULSE_LEASE_TTL"] == ["1m", "environment"]
    assert rows["PULSE_HEARTBEAT_INTERVAL"] == ["10s", "default"]
    assert {option.variable for option in OPTIONS} <= rows.keys()
    assert "FAIL" not in output
    assert output.splitlines()[-1].startswith("pulsed would serve")


def test_every_problem_is_told_and_fails(check: Check) -> None:
    code, told = check(DB_HOST=f"mysql://pulse:{CANARY}@h/db", PULSE_LEASE_TTL="soon", PULSE_TLS_KEY="/k")
    assert code == 1
    for variable in ("DB_HOST must be a URL", "PULSE_LEASE_TTL is 'soon'", "PULSE_TLS_CERT is not set"):
        assert f"FAIL settings {variable}" in told
    assert told.endswith("pulsed would not serve: 3 problems, 0 warnings.")
    assert CANARY not in told


def test_check_that_breaks_is_told_without_a_traceback(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Settings) -> Iterator[None]:
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr(checking, "check_tls", broken)
    code, told = check(DB_HOST="postgres://u@127.0.0.1:1/d")
    assert code == 1
    assert "FAIL tls This could not be checked (ZeroDivisionError)" in told
    assert "ok ports" in told
    assert CANARY not in told


# ------------------------------------------------------------ what is shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://pulse:x@db.example/jobs", "pulse@db.example/jobs"),
        ("postgres://pulse:x@h1:5432,h2:5433/jobs?sslmode=require", "pulse@h1:5432,h2:5433/jobs"),
        ("postgresql://pulse@/jobs?host=/run/pg&password=x", "pulse@/run/pg/jobs"),
        ("postgres://[::1]:5432/jobs?user=pulse", "pulse@[::1]:5432/jobs"),
        ("postgres://db.example", "db.example/"),
        ("host=db.example user=pulse password=x dbname=jobs", "host=db.example dbname=jobs user=pulse"),
    ],
)
def test_database_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "written",
    [
        f"jdbc:postgresql://db/jobs?password={CANARY}",
        f"postgresql+asyncpg://pulse:{CANARY}@db/jobs",
        f"pulse:{CANARY}@db/jobs",
        CANARY,
    ],
)
def test_no_password_shows_of_what_is_no_url(check: Check, written: str) -> None:
    code, told = check(DB_HOST=written)
    assert code == 1
    assert "FAIL settings DB_HOST must be a URL" in told
    assert CANARY not in told


@given(st.text(max_size=5), st.text(max_size=5))
def test_no_password_shows_however_it_breaks_the_url(before: str, after: str) -> None:
    assert CANARY not in shown_url(f"postgres://pulse:{before}{CANARY}{after}@db.example:5432/jobs")


@pytest.mark.parametrize(
    "users", [f"ann:{CANARY},bob:{HASH}:viewer", f"ann:{CANARY}:boss", f"ann:{CANARY},ann:{CANARY}"]
)
def test_users_are_shown_without_their_secrets(check: Check, users: str) -> None:
    _, told = check(DB_HOST=f"postgres://pulse:{CANARY}@127.0.0.1:1/jobs", PULSE_AUTH_USERS=users)
    assert CANARY not in told
    assert HASH not in told
    assert "pulse@127.0.0.1:1/jobs environment" in told


def test_variable_that_nobody_reads_is_told_with_what_may_be_meant(check: Check) -> None:
    for_others = {"PULSE_ADDR": "x", "PULSE_USER": "u", "PULSE_PASSWORD": CANARY, "PULSE_TLS_CA": "/ca"}
    for_others |= {"PULSE_UI_ADDR": ":8080"}
    of_kubernetes = {"PULSE_PORT": "tcp://10.0.0.1:50051", "PULSE_GRPC_SERVICE_HOST": "10.0.0.1"}
    _, told = check(
        DB_HOST="postgres://u@127.0.0.1:1/d",
        PULSE_LEASE_TLL="1m",
        PULSE_UNHEARD_OF="1",
        **for_others,
        **of_kubernetes,
    )
    assert "warn settings PULSE_LEASE_TLL is set" in told
    assert "Did you mean PULSE_LEASE_TTL?" in told
    assert "PULSE_UNHEARD_OF" in told
    assert told.count("pulsed has no such setting") == 2
    assert CANARY not in told


def test_database_in_another_variable_is_told(check: Check, tmp_path: Path) -> None:
    _, told = check(DATABASE_URL=f"postgres://u:{CANARY}@h/d", PULSE_DATA_DIR=str(tmp_path / "data"))
    assert "warn settings DATABASE_URL is set, but pulsed reads DB_HOST" in told
    assert CANARY not in told


# ------------------------------------------------------------ doors


NOWHERE = "postgres://u@127.0.0.1:1/d"


def test_open_server_that_others_can_reach_is_warned_of(check: Check) -> None:
    _, told = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR="0.0.0.0:0")
    assert (
        "FAIL settings PULSE_GRPC_ADDR is 0.0.0.0:0, which others can reach, and there are no users" in told
    )
    _, told = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR="0.0.0.0:0", PULSE_INSECURE_OPEN_TO_NETWORK="on")
    assert "warn users None, and 0.0.0.0:0 can be reached from elsewhere" in told
    _, told = check(DB_HOST=NOWHERE)
    assert "info users None: everyone on this machine" in told


def test_users_without_tls_are_warned_of_off_this_machine(check: Check) -> None:
    told = {
        address: check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR=address, PULSE_AUTH_USERS=f"ann:{HASH}")[1]
        for address in ("0", "127.0.0.1:0")
    }
    assert "in plain text to [::]:0" in told["0"]
    assert "in plain text" not in told["127.0.0.1:0"]


def test_secrets_that_are_weak_are_warned_of(check: Check) -> None:
    _, told = check(DB_HOST=NOWHERE, PULSE_AUTH_USERS=f"ann:{CANARY},bob:{HASH}:viewer")
    assert "ok users ann (admin), bob (viewer)." in told
    assert "warn users Plain passwords: ann." in told
    assert "warn users Unusual bcrypt costs: bob (4)." in told


def test_users_file_that_everyone_can_read_is_warned_of(check: Check, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ann:{HASH}")
    told = {}
    for mode in (0o644, 0o640):
        file.chmod(mode)
        told[mode] = check(DB_HOST=NOWHERE, PULSE_AUTH_USERS_FILE=str(file))[1]
    assert "can be read by everyone on this machine" in told[0o644]
    assert "can be read by everyone" not in told[0o640]


def test_certificate_is_looked_at(check: Check, tmp_path: Path) -> None:
    authority = trustme.CA()
    now = datetime.now(UTC)

    def issued(name: str, days: int) -> dict[str, str]:
        pair = authority.issue_cert(
            "jobs.example", not_before=now - timedelta(days=9), not_after=now + timedelta(days=days)
        )
        certificate, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        pair.cert_chain_pems[0].write_to_path(certificate)
        pair.private_key_pem.write_to_path(key)
        key.chmod(stat.S_IRUSR)
        return {"PULSE_TLS_CERT": str(certificate), "PULSE_TLS_KEY": str(key)}

    good, soon, over = issued("good", 90), issued("soon", 3), issued("over", -1)
    told = {
        name: check(DB_HOST=NOWHERE, **files)[1]
        for name, files in (("good", good), ("soon", soon), ("over", over))
    }
    assert "ok tls The certificate is for jobs.example and expires on" in told["good"]
    assert "warn tls The certificate is for jobs.example" in told["soon"]
    assert "FAIL tls" in told["over"]
    mixed = good | {"PULSE_TLS_KEY": soon["PULSE_TLS_KEY"]}
    assert "FAIL tls The key in PULSE_TLS_KEY" in check(DB_HOST=NOWHERE, **mixed)[1]


def test_ports_that_are_taken_fail(check: Check) -> None:
    with listening() as address:
        code, told = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR=address, PULSE_HTTP_ADDR="127.0.0.1:0")
        assert code == 1
        assert f"FAIL ports Cannot listen on {address}: is another pulsed there?" in told
        assert "ok ports HTTP could listen on 127.0.0.1:0" in told
        _, told = check(DB_HOST=NOWHERE, PULSE_HTTP_ADDR=address)
        assert "PULSE_HTTP_ADDR takes another port" in told
    _, told = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR=address, PULSE_HTTP_ADDR=address)
    assert f"FAIL settings PULSE_GRPC_ADDR and PULSE_HTTP_ADDR are both {address}" in told
    _, told = check(DB_HOST=NOWHERE, PULSE_HTTP_ADDR="unix:/not/there/pulse.sock")
    assert "FAIL ports PULSE_HTTP_ADDR: no socket can be made in /not/there" in told


# ------------------------------------------------------------ the database


def test_database_that_is_away_fails(check: Check) -> None:
    code, told = check(DB_HOST=f"postgres://pulse:{CANARY}@127.0.0.1:1/jobs")
    assert code == 1
    assert "FAIL database The database does not answer" in told
    assert CANARY not in told


def test_schema_that_is_behind_fails_unless_it_would_be_migrated(
    check: Check, empty_database_dsn: str, databases: Databases
) -> None:
    code, told = check(DB_HOST=empty_database_dsn)
    assert code == 1
    assert "FAIL schema The database's schema is behind" in told
    assert "pulsed migrate" in told
    code, told = check("--migrate", DB_HOST=empty_database_dsn)
    assert code == 0
    assert "info schema --migrate would apply 0001_jobs" in told

    async def nothing_was_made(dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT to_regnamespace('pulse')") is None
        await connection.close()

    databases.run(nothing_was_made(empty_database_dsn))


def test_schema_that_is_newer_fails_even_with_migrate(
    check: Check, database_dsn: str, databases: Databases
) -> None:
    databases.run(
        execute(database_dsn, "INSERT INTO pulse.schema_migrations VALUES (9999, '9999_future', 'x')")
    )
    code, told = check("--migrate", DB_HOST=database_dsn)
    assert code == 1
    assert "FAIL schema The database's schema is newer than this server: it has 9999_future" in told


def test_missing_privileges_fail_by_name(check: Check, database_dsn: str, databases: Databases) -> None:
    role = f"clerk_{os.getpid()}"
    as_clerk = as_role(database_dsn, role, "a-clerk")
    databases.run(execute(database_dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'a-clerk'"))
    try:
        code, told = check(DB_HOST=as_clerk)
        assert code == 1
        assert f"FAIL privileges {role} lacks SELECT, INSERT, UPDATE, DELETE on pulse.jobs." in told
        databases.run(
            execute(
                database_dsn,
                f"GRANT USAGE ON SCHEMA pulse TO {role}",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role}",
                f"REVOKE DELETE ON pulse.jobs FROM {role}",
            )
        )
        _, told = check(DB_HOST=as_clerk)
        assert f"FAIL privileges {role} lacks DELETE on pulse.jobs." in told
        assert told.count("FAIL") == 1
        assert "ok schema Up to date." in told
    finally:
        databases.run(execute(database_dsn, f"DROP OWNED BY {role}", f"DROP ROLE {role}"))


def test_connections_are_compared_with_what_is_free(check: Check, database_dsn: str) -> None:
    code, told = check(DB_HOST=database_dsn)
    assert "ok connections Up to" in told
    code, told = check("--processes", "64", DB_HOST=database_dsn)
    assert code == 0
    assert "warn connections Up to" in told
    assert "(64 processes)" in told


def test_counted_connections_are_those_of_the_pools() -> None:
    pools = Database("postgres://u@h/d").pools.values()
    settings = Settings(grpc_address="127.0.0.1:0", database_url="postgres://u@h/d")
    assert settings.most_connections == sum(pool.use.allowed for pool in pools) + 1  # and the wake-up line


def test_database_that_may_forget_is_warned_of(check: Check, database_dsn: str) -> None:
    _, told = check(DB_HOST=database_dsn)
    assert "warn database fsync is off" in told  # as it is for the tests


async def test_old_transaction_is_warned_of(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_checks, "_OLD_TRANSACTION", timedelta(0))
    connection = await asyncpg.connect(database_dsn)
    settings = Settings(grpc_address="127.0.0.1:0", database_url=database_dsn)
    async with connection.transaction():
        found = await database_checks.check_database(settings, database_dsn, migrates=False)
    await connection.close()
    assert any("A transaction has been open for" in finding.sentence for finding in found)


# ------------------------------------------------------------ the embedded database


def test_embedded_database_is_described_and_not_made(check: Check, tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    code, told = check(PULSE_DATA_DIR=str(directory))
    assert code == 0
    assert "ok database Embedded PostgreSQL" in told
    assert f"{directory} would be made" in told
    assert not directory.parent.exists()
    assert f"{tmp_path} would get an empty database" in check(PULSE_DATA_DIR=str(tmp_path))[1]


def test_embedded_database_in_use_fails(check: Check, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, told = check(PULSE_DATA_DIR=str(tmp_path))
    assert code == 1
    assert "in use by another pulsed with pid 4711" in told


def test_embedded_database_without_programs_or_place_fails(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    code, told = check(PULSE_DATA_DIR=str(tmp_path / "file" / "data"))
    assert code == 1
    assert "is not a directory" in told
    monkeypatch.setattr(binaries, "candidate_directories", lambda: iter(()))
    code, told = check(PULSE_DATA_DIR=str(tmp_path / "data"))
    assert code == 1
    assert "FAIL database No Postgres binaries were found" in told


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()
