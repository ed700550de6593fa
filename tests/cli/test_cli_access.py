"""A server that requires TLS and a password, an unreachable one, and their sentences."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.cli.command_line import CommandLine, ended
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.transport.tls_files import Authority, make_authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded_address(databases: Databases, template_database: str, authority: Authority) -> Iterator[str]:
    """Where a pulsed serves that speaks TLS and knows three users."""
    files = authority.server("localhost", "127.0.0.1")
    variables = {
        "PULSE_TLS_CERT": str(files.certificate),
        "PULSE_TLS_KEY": str(files.key),
        "PULSE_AUTH_USERS": "ops:swordfish,eve:tuna:viewer,bob:cod:producer",
    }
    with databases.temporary(template_database) as dsn, serving(dsn, **variables) as address:
        yield address


@pytest.fixture
def guarded(guarded_address: str, authority: Authority, tmp_path: Path) -> CommandLine:
    """`pulse` with that address and its CA."""
    return CommandLine(tmp_path, {"PULSE_ADDR": guarded_address, "PULSE_TLS_CA": str(authority.file)})


def test_right_password_lets_in_from_wherever_it_comes(guarded: CommandLine) -> None:
    assert guarded("jobs", "list", PULSE_USER="ops", PULSE_PASSWORD="swordfish").code == 0
    assert guarded("jobs", "list", "--user", "ops", "--password-stdin", stdin="swordfish\n").code == 0
    saved = guarded("save", "creds", "--user", "ops", "--password-stdin", stdin="swordfish")
    assert saved.code == 0
    assert guarded("jobs", "list", PULSE_ADDR="", PULSE_TLS_CA="").code == 0


def test_fresh_server_has_nothing_and_says_what_to_do(guarded: CommandLine) -> None:
    user = {"PULSE_USER": "ops", "PULSE_PASSWORD": "swordfish"}
    assert "pulse submit TOPIC" in guarded("jobs", "list", **user).err
    assert "pulse schedules create" in guarded("schedules", "list", **user).err


def test_wrong_password_is_4_and_not_shown(guarded: CommandLine) -> None:
    result = guarded("jobs", "list", PULSE_USER="ops", PULSE_PASSWORD="trout-in-error")
    assert (result.code, result.out) == (4, "")
    assert "wrong" in result.err
    assert "pulse save creds" in result.err
    assert "trout" not in result.err


def test_wrong_password_is_not_saved(guarded: CommandLine) -> None:
    result = guarded("save", "creds", "--user", "ops", "--password-stdin", stdin="trout")
    assert result.code == 4
    assert not guarded.config_path.exists()


def test_no_credentials_are_4(guarded: CommandLine) -> None:
    result = guarded("dispatch", "status")
    assert result.code == 4
    assert "PULSE_USER" in result.err


def test_what_a_role_does_not_allow_is_4(guarded: CommandLine) -> None:
    eve = {"PULSE_USER": "eve", "PULSE_PASSWORD": "tuna"}
    assert guarded("jobs", "list", **eve).code == 0
    result = guarded("dispatch", "pause", "--yes", **eve)
    assert result.code == 4
    assert "pulse config show" in result.err


def test_viewer_sees_everything_and_changes_nothing(guarded: CommandLine) -> None:
    eve = {"PULSE_USER": "eve", "PULSE_PASSWORD": "tuna"}
    for command in (["topics"], ["workers"], ["top"], ["dispatch", "status"]):
        assert guarded(*command, **eve).code == 0
    assert guarded("jobs", "retry", "--status", "DEAD_LETTERED", "--dry-run", **eve).code == 0
    guarded("submit", "t", PULSE_USER="ops", PULSE_PASSWORD="swordfish")
    result = guarded("jobs", "cancel", "--topic", "t", "--yes", **eve)
    assert (result.code, result.out) == (4, "")


def test_status_names_the_user_who_paused(guarded: CommandLine) -> None:
    user = {"PULSE_USER": "ops", "PULSE_PASSWORD": "swordfish"}
    guarded("dispatch", "pause", "--topic", "nightly", "--reason", "migration", **user)

    shown = guarded("dispatch", "status", **user).out
    (paused,) = guarded("dispatch", "status", "-o", "json", **user).json["topics"]

    assert " by ops, because: migration" in shown
    assert paused["paused_by"] == "ops"
    guarded("dispatch", "resume", "--topic", "nightly", **user)


def test_wait_needs_no_more_than_a_producer_may(guarded: CommandLine) -> None:
    """Without permission to watch, the end is found by polling."""
    bob = {"PULSE_USER": "bob", "PULSE_PASSWORD": "cod"}
    result = guarded("submit", "t", "--wait-timeout", "300ms", **bob)
    assert result.code == 1
    assert "The job continues" in result.err


def test_top_leaves_the_screen_to_say_who_is_not_let_in(guarded: CommandLine) -> None:
    with guarded.terminal("top") as child:
        assert ended(child) == 4
        assert "PULSE_USER" in child.before.partition("\x1b[?1049l")[2]


def test_terminal_asks_for_the_password_of_a_user_without_one(guarded: CommandLine) -> None:
    with guarded.terminal("jobs", "list", "--user", "ops") as child:
        child.expect("Password of ops: ")
        child.sendline("swordfish")
        assert ended(child) == 0
        assert "swordfish" not in child.before


def test_pipe_cannot_be_asked(guarded: CommandLine) -> None:
    result = guarded("jobs", "list", "--user", "ops")
    assert result.code == 2
    assert "PULSE_PASSWORD" in result.err


def test_client_without_tls_gets_a_hint_that_the_server_uses_it(guarded: CommandLine) -> None:
    result = guarded("jobs", "list", "--no-tls", "--timeout", "2s")
    assert (result.code, result.out) == (5, "")
    assert "TLS" in result.err


def test_client_with_tls_gets_a_hint_that_the_server_does_not(
    pulse: CommandLine, authority: Authority
) -> None:
    """In a process of its own, where gRPC's log would show as well."""
    with pulse.process("jobs", "list", "--tls-ca", str(authority.file), "--timeout", "2s") as process:
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (5, "")
    assert "TLS" in errors
    assert len(errors.splitlines()) == 1


def test_other_ca_is_5_and_names_the_file(guarded: CommandLine, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    result = guarded("jobs", "list", "--tls-ca", str(other.file), "--timeout", "2s")
    assert result.code == 5
    assert "certificate" in result.err


def test_missing_ca_file_is_misuse(guarded: CommandLine) -> None:
    result = guarded("jobs", "list", "--tls-ca", "/does/not/exist")
    assert result.code == 2
    assert "/does/not/exist" in result.err


def test_unreachable_server_is_5_and_names_its_address(alone: CommandLine) -> None:
    for command in (["jobs", "list"], ["submit", "t"], ["dispatch", "status"], ["schedules", "list"]):
        result = alone(*command, "--addr", "127.0.0.1:1", "--timeout", "200ms")
        assert (result.code, result.out) == (5, "")
        assert "127.0.0.1:1" in result.err
        assert len(result.err.splitlines()) == 1


def test_dead_server_at_a_terminal(alone: CommandLine) -> None:
    result = alone.screen("jobs", "list", "--addr", "127.0.0.1:1", "--timeout", "200ms")
    assert result.code == 5
    assert "Traceback" not in result.out


def test_watch_waits_for_a_server_that_is_away(alone: CommandLine) -> None:
    options = ["--addr", "127.0.0.1:1", "--timeout", "200ms", "--watch", "--interval", "200ms"]
    with alone.terminal("jobs", "list", *options, columns=160) as child:
        child.expect("No pulsed answers")
        child.expect("No pulsed answers")
        child.sendintr()
        assert ended(child) == 130


def test_address_that_is_none_is_misuse(alone: CommandLine) -> None:
    result = alone("jobs", "list", "--addr", "not an address")
    assert result.code == 2
    assert "host:port" in result.err


def test_secret_is_in_no_error(guarded: CommandLine) -> None:
    guarded.config_path.parent.mkdir(parents=True)
    guarded.config_path.write_text(
        json.dumps({"current": "default", "contexts": {"default": {"user": "ops", "password": "secret-1"}}})
    )
    for command in (["jobs", "list"], ["config", "show"], ["config", "contexts", "-o", "json"]):
        result = guarded(*command)
        assert "secret-1" not in result.out + result.err


def test_whoami_shows_the_user_and_its_permitted_calls(guarded: CommandLine, pulse: CommandLine) -> None:
    eve = {"PULSE_USER": "eve", "PULSE_PASSWORD": "tuna"}
    identity = guarded("whoami", "-o", "json", **eve).json
    assert (identity["user"], identity["role"]) == ("eve", "viewer")
    assert "ListJobs" in identity["methods"]
    assert "RetryJobs" not in identity["methods"]
    assert "viewer" in guarded("whoami", **eve).out

    assert "none" in pulse("whoami").out
    assert pulse("whoami", "-o", "json").json["user"] is None


def test_saved_password_is_not_sent_to_another_address(guarded: CommandLine) -> None:
    saved = guarded("save", "creds", "--user", "ops", "--password-stdin", stdin="swordfish")
    assert saved.code == 0
    with listening_for_credentials() as (elsewhere, heard):
        for arguments, variables in (
            (("--addr", elsewhere, "--no-tls"), {"PULSE_TLS_CA": ""}),
            ((), {"PULSE_ADDR": elsewhere, "PULSE_TLS_CA": "", "PULSE_TLS": "off"}),
            (("--addr", elsewhere, "--no-tls", "--user", "ops"), {"PULSE_TLS_CA": ""}),
        ):
            result = guarded("dispatch", "status", *arguments, **variables)
            assert result.code != 0
            if "--user" not in arguments:
                assert f"are not sent to {elsewhere}" in result.err
                assert f"pulse save creds --context NAME --addr {elsewhere}" in result.err
    assert heard
    assert not any("authorization" in names for names in heard)


@contextmanager
def listening_for_credentials() -> Iterator[tuple[str, list[set[str]]]]:
    """A server that refuses every call and keeps the names of the metadata that came with it."""
    heard: list[set[str]] = []

    class Everything(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> None:
            heard.append({name for name, _ in details.invocation_metadata})  # type: ignore[attr-defined]

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Everything()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", heard
    finally:
        server.stop(None).wait()
