"""`pulsed check`: what it prints about a configuration, and that it does nothing else."""

import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from pulse_server import checks
from pulse_server.checks import shown_url
from pulse_server.settings import OPTIONS, Settings
from tests.rows import each_row
from tests.server.conftest import CANARY, Check
from tests.server.pulsed_process import run_pulsed

HASH = "$2b$04$B/b9WYlTsjl9I7JHXA.wUeaEhq5sw7iTPEG/BTrb49PqPxFEH8CR6"


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


async def test_good_configuration_passes(database_dsn: str) -> None:
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


def test_every_problem_is_reported_and_fails(check: Check) -> None:
    code, output = check(DB_HOST=f"mysql://pulse:{CANARY}@h/db", PULSE_LEASE_TTL="soon", PULSE_TLS_KEY="/k")
    assert code == 1
    for variable in ("DB_HOST must be a URL", "PULSE_LEASE_TTL is 'soon'", "PULSE_TLS_CERT is not set"):
        assert f"FAIL settings {variable}" in output
    assert output.endswith("pulsed would not serve: 3 problems, 0 warnings.")
    assert CANARY not in output


def test_check_that_raises_is_reported_without_a_traceback(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Settings) -> Iterator[None]:
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr(checks, "check_tls", broken)
    code, output = check(DB_HOST="postgres://u@127.0.0.1:1/d")
    assert code == 1
    assert "FAIL tls This could not be checked (ZeroDivisionError)" in output
    assert "ok ports" in output
    assert CANARY not in output


# ------------------------------------------------------------ what is shown


@each_row(
    "url, shown",
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


@each_row(
    "written",
    [
        f"jdbc:postgresql://db/jobs?password={CANARY}",
        f"postgresql+asyncpg://pulse:{CANARY}@db/jobs",
        f"pulse:{CANARY}@db/jobs",
        CANARY,
    ],
)
def test_no_password_shows_of_what_is_no_url(check: Check, written: str) -> None:
    code, output = check(DB_HOST=written)
    assert code == 1
    assert "FAIL settings DB_HOST must be a URL" in output
    assert CANARY not in output


@given(st.text(max_size=5), st.text(max_size=5))
def test_no_password_shows_however_it_breaks_the_url(before: str, after: str) -> None:
    assert CANARY not in shown_url(f"postgres://pulse:{before}{CANARY}{after}@db.example:5432/jobs")


@each_row("users", [f"ann:{CANARY},bob:{HASH}:viewer", f"ann:{CANARY}:boss", f"ann:{CANARY},ann:{CANARY}"])
def test_users_are_shown_without_their_secrets(check: Check, users: str) -> None:
    _, output = check(DB_HOST=f"postgres://pulse:{CANARY}@127.0.0.1:1/jobs", PULSE_AUTH_USERS=users)
    assert CANARY not in output
    assert HASH not in output
    assert "pulse@127.0.0.1:1/jobs environment" in output


def test_unknown_variable_is_reported_with_the_closest_setting(check: Check) -> None:
    for_others = {"PULSE_ADDR": "x", "PULSE_USER": "u", "PULSE_PASSWORD": CANARY, "PULSE_TLS_CA": "/ca"}
    for_others |= {"PULSE_UI_ADDR": ":8080"}
    of_kubernetes = {"PULSE_PORT": "tcp://10.0.0.1:50051", "PULSE_GRPC_SERVICE_HOST": "10.0.0.1"}
    _, output = check(
        DB_HOST="postgres://u@127.0.0.1:1/d",
        PULSE_LEASE_TLL="1m",
        PULSE_UNHEARD_OF="1",
        **for_others,
        **of_kubernetes,
    )
    assert "warn settings PULSE_LEASE_TLL is set" in output
    assert "Did you mean PULSE_LEASE_TTL?" in output
    assert "PULSE_UNHEARD_OF" in output
    assert output.count("pulsed has no such setting") == 2
    assert CANARY not in output


def test_database_in_another_variable_is_reported(check: Check, tmp_path: Path) -> None:
    _, output = check(DATABASE_URL=f"postgres://u:{CANARY}@h/d", PULSE_DATA_DIR=str(tmp_path / "data"))
    assert "warn settings DATABASE_URL is set, but pulsed reads DB_HOST" in output
    assert CANARY not in output


# ------------------------------------------------------------ doors


NOWHERE = "postgres://u@127.0.0.1:1/d"


def test_open_server_that_others_can_reach_is_warned_of(check: Check) -> None:
    _, output = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR="0.0.0.0:0")
    assert (
        "FAIL settings PULSE_GRPC_ADDR is 0.0.0.0:0, which others can reach, and there are no users" in output
    )
    _, output = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR="0.0.0.0:0", PULSE_INSECURE_OPEN_TO_NETWORK="on")
    assert "warn users None, and 0.0.0.0:0 can be reached from elsewhere" in output
    _, output = check(DB_HOST=NOWHERE)
    assert "info users None: everyone on this machine" in output


def test_users_without_tls_are_warned_of_off_this_machine(check: Check) -> None:
    output = {
        address: check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR=address, PULSE_AUTH_USERS=f"ann:{HASH}")[1]
        for address in ("0", "127.0.0.1:0")
    }
    assert "in plain text to [::]:0" in output["0"]
    assert "in plain text" not in output["127.0.0.1:0"]


def test_secrets_that_are_weak_are_warned_of(check: Check) -> None:
    _, output = check(DB_HOST=NOWHERE, PULSE_AUTH_USERS=f"ann:{CANARY},bob:{HASH}:viewer")
    assert "ok users ann (admin), bob (viewer)." in output
    assert "warn users Plain passwords: ann." in output
    assert "warn users Unusual bcrypt costs: bob (4)." in output


def test_users_file_that_everyone_can_read_is_warned_of(check: Check, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ann:{HASH}")
    output = {}
    for mode in (0o644, 0o640):
        file.chmod(mode)
        output[mode] = check(DB_HOST=NOWHERE, PULSE_AUTH_USERS_FILE=str(file))[1]
    assert "can be read by everyone on this machine" in output[0o644]
    assert "can be read by everyone" not in output[0o640]


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
    output = {
        name: check(DB_HOST=NOWHERE, **files)[1]
        for name, files in (("good", good), ("soon", soon), ("over", over))
    }
    assert "ok tls The certificate is for jobs.example and expires on" in output["good"]
    assert "warn tls The certificate is for jobs.example" in output["soon"]
    assert "FAIL tls" in output["over"]
    mixed = good | {"PULSE_TLS_KEY": soon["PULSE_TLS_KEY"]}
    assert "FAIL tls The key in PULSE_TLS_KEY" in check(DB_HOST=NOWHERE, **mixed)[1]


def test_ports_that_are_taken_fail(check: Check) -> None:
    with listening() as address:
        code, output = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR=address, PULSE_HTTP_ADDR="127.0.0.1:0")
        assert code == 1
        assert f"FAIL ports Cannot listen on {address}: is another pulsed there?" in output
        assert "ok ports HTTP could listen on 127.0.0.1:0" in output
        _, output = check(DB_HOST=NOWHERE, PULSE_HTTP_ADDR=address)
        assert "PULSE_HTTP_ADDR takes another port" in output
    _, output = check(DB_HOST=NOWHERE, PULSE_GRPC_ADDR=address, PULSE_HTTP_ADDR=address)
    assert f"FAIL settings PULSE_GRPC_ADDR and PULSE_HTTP_ADDR are both {address}" in output
    _, output = check(DB_HOST=NOWHERE, PULSE_HTTP_ADDR="unix:/not/there/pulse.sock")
    assert "FAIL ports PULSE_HTTP_ADDR: no socket can be made in /not/there" in output
