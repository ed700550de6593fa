"""What an operator may set, and what is said when it is wrong."""

from datetime import timedelta
from pathlib import Path

import pytest

from pulse.topic_settings import Backoff
from pulse_server.access.users import Role, User
from pulse_server.base.bounds import StepBounds
from pulse_server.main import main
from pulse_server.settings import (
    OPTIONS,
    BadSettings,
    Retention,
    Settings,
    TlsFiles,
    parse_duration,
    read_settings,
)
from pulse_server.settings.options import parse_backoff
from tests.rows import each_row
from tests.server.settings_problems import URL, problems_of


def test_everything_has_a_default() -> None:
    settings = read_settings({"DB_HOST": URL})
    assert settings == Settings(grpc_address="127.0.0.1:50051", database_url=URL)
    assert settings.lease_ttl == timedelta(seconds=30)
    assert settings.heartbeat_interval == timedelta(seconds=10)
    assert settings.watchdog_interval == timedelta(seconds=10)
    assert settings.dispatch_interval == timedelta(milliseconds=500)
    assert settings.processes == 1
    assert settings.is_open
    assert settings.retention == Retention(timedelta(days=7), timedelta(days=7), timedelta(days=30))


@each_row("nothing", ["", " "])
def test_empty_values_count_as_unset(nothing: str) -> None:
    empty = {option.variable: nothing for option in OPTIONS}
    assert read_settings(empty | {"DB_HOST": URL}) == read_settings({"DB_HOST": URL})


def test_defaults_that_help_prints_are_the_ones_that_hold() -> None:
    printed = {option.variable: option.default for option in OPTIONS if "$" not in option.default}
    assert read_settings(printed | {"DB_HOST": URL}) == read_settings({"DB_HOST": URL})


def test_each_setting_is_read_from_its_variable() -> None:
    given = {
        "DB_HOST": URL,
        "PULSE_DB_POOLER": "on",
        "PULSE_DATA_DIR": "/var/lib/pulse",
        "PULSE_GRPC_ADDR": "0.0.0.0:7000",
        "PULSE_HTTP_ADDR": "9090",
        "PULSE_AUTH_USERS": "ann:pa55,bob:w0rd:viewer",
        "PULSE_INSECURE_OPEN_TO_NETWORK": "on",
        "PULSE_METRICS_AUTH": "on",
        "PULSE_TLS_CERT": "/tls/cert.pem",
        "PULSE_TLS_KEY": "/tls/key.pem",
        "PULSE_TLS_CLIENT_CA": "/tls/ca.pem",
        "PULSE_GRPC_REFLECTION": "on",
        "PULSE_PROCESSES": "4",
        "PULSE_LEASE_TTL": "1h",
        "PULSE_HEARTBEAT_INTERVAL": "2m",
        "PULSE_WATCHDOG_INTERVAL": "3s",
        "PULSE_DISPATCH_INTERVAL": "40ms",
        "PULSE_DRAIN_TIMEOUT": "5.5",
        "PULSE_LOG_LEVEL": "DEBUG",
        "PULSE_MAX_ATTEMPTS": "8",
        "PULSE_BACKOFF": "first=2s, factor=3, longest=6h, jitter=0",
        "PULSE_ATTEMPT_TIMEOUT": "2m",
        "PULSE_MAX_CRASHES": "3",
        "PULSE_MAX_RESULT": "256K",
        "PULSE_MAX_STEPS": "50",
        "PULSE_MAX_STEP_BYTES": "2M",
        "PULSE_MAX_WORKFLOW_JOBS": "500",
        "PULSE_RETENTION_COMPLETED": "1d",
        "PULSE_RETENTION_CANCELED": "2d",
        "PULSE_RETENTION_DEAD_LETTERED": "forever",
        "PULSE_RETENTION_AUDIT": "5d",
        "PULSE_RETENTION_GRACE": "0",
    }
    assert {option.variable for option in OPTIONS} - given.keys() == {"PULSE_AUTH_USERS_FILE"}
    assert read_settings(given) == Settings(
        grpc_address="0.0.0.0:7000",
        database_url=URL,
        data_directory=Path("/var/lib/pulse"),
        behind_pooler=True,
        http_address="[::]:9090",
        users=(User("ann", "pa55"), User("bob", "w0rd", Role.VIEWER)),
        open_to_network=True,
        metrics_need_login=True,
        tls=TlsFiles(Path("/tls/cert.pem"), Path("/tls/key.pem"), Path("/tls/ca.pem")),
        reflection=True,
        processes=4,
        log_level="debug",
        lease_ttl=timedelta(hours=1),
        heartbeat_interval=timedelta(minutes=2),
        watchdog_interval=timedelta(seconds=3),
        dispatch_interval=timedelta(milliseconds=40),
        drain_timeout=timedelta(seconds=5.5),
        retention=Retention(timedelta(days=1), timedelta(days=2), None),
        retention_audit=timedelta(days=5),
        retention_grace=timedelta(),
        runs={
            "backoff": Backoff(first=timedelta(seconds=2), factor=3, longest=timedelta(hours=6), jitter=0),
            "max_attempts": 8,
            "attempt_timeout": timedelta(minutes=2),
            "max_crashes": 3,
        },
        max_result_bytes=256 * 1024,
        steps=StepBounds(50, 2 * 1024 * 1024),
        max_workflow_jobs=500,
    )


@each_row("text, size", [("1", 1), ("65536", 65536), ("64kib", 65536), ("1M", 1 << 20)])
def test_size_of_results_is_read(text: str, size: int) -> None:
    assert read_settings({"DB_HOST": URL, "PULSE_MAX_RESULT": text}).max_result_bytes == size


@each_row("text", ["0", "-1", "2M", "1G", "64 words", "1.5K"])
def test_size_of_results_that_is_wrong_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadSettings, match=r"PULSE_MAX_RESULT is .*: give a size such as 65536, 64K or 1M"):
        read_settings({"DB_HOST": URL, "PULSE_MAX_RESULT": text})


def test_backoff_needs_only_its_first_delay() -> None:
    runs = read_settings({"DB_HOST": URL, "PULSE_BACKOFF": "first=5s"}).runs
    assert runs["backoff"] == Backoff(first=timedelta(seconds=5))


@each_row(
    "text",
    ["", "5s", "factor=2", "first=2h,longest=1h", "first=1s,factor=0.5", "first=1s,jitter=2", "first=1s,x=1"],
)
def test_backoff_that_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match=r"PULSE_BACKOFF is .*: give first=2s,factor=3"):
        parse_backoff(text, "PULSE_BACKOFF")


def test_users_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# who gets in\nann:pa55:worker\n")
    settings = read_settings({"DB_HOST": URL, "PULSE_AUTH_USERS_FILE": str(file)})
    assert settings.users_file == file
    assert not settings.is_open


@each_row(
    "text, duration",
    [
        ("250ms", timedelta(milliseconds=250)),
        ("2", timedelta(seconds=2)),
        (" 1.5S ", timedelta(seconds=1.5)),
        ("3m", timedelta(minutes=3)),
        ("4h", timedelta(hours=4)),
        ("7d", timedelta(days=7)),
    ],
)
def test_duration_is_written_with_its_unit(text: str, duration: timedelta) -> None:
    assert parse_duration(text, "PULSE_LEASE_TTL") == duration


@each_row("duration", ["0", "0s", "-1s", "soon", "1w", "1 2", "0.0001ms", "366d", "9" * 400, "1e3", "s"])
def test_bad_duration_is_named(duration: str) -> None:
    with pytest.raises(BadSettings, match="PULSE_LEASE_TTL"):
        parse_duration(duration, "PULSE_LEASE_TTL")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DB_HOST", "localhost:5432"),
        ("PULSE_GRPC_ADDR", "host:port"),
        ("PULSE_LEASE_TTL", "soon"),
        ("PULSE_LEASE_TTL", "20s"),
        ("PULSE_HEARTBEAT_INTERVAL", "25s"),
        ("PULSE_WATCHDOG_INTERVAL", "20s"),
        ("PULSE_DISPATCH_INTERVAL", "never"),
        ("PULSE_DRAIN_TIMEOUT", "-1"),
        ("PULSE_LOG_LEVEL", "loud"),
        ("PULSE_DB_POOLER", "perhaps"),
        ("PULSE_PROCESSES", "0"),
        ("PULSE_PROCESSES", "many"),
        ("PULSE_HTTP_ADDR", "http://0.0.0.0:80"),
        ("PULSE_AUTH_USERS", "ann:secret,bob"),
        ("PULSE_AUTH_USERS", "ann:secret:boss"),
        ("PULSE_AUTH_USERS_FILE", "/not/there"),
        ("PULSE_RETENTION_COMPLETED", "11y"),
        ("PULSE_TLS_KEY", "/tls/key.pem"),
        ("PULSE_TLS_CERT", "/tls/cert.pem"),
        ("PULSE_TLS_CLIENT_CA", "/tls/ca.pem"),
        ("PULSE_DATA_DIR", "~no-such-account/pulse"),
    ],
)
def test_wrong_setting_ends_pulsed_with_a_sentence_that_names_it(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DB_HOST", URL)
    monkeypatch.setenv(variable, value)
    assert main([]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (sentence,) = printed.err.splitlines()
    assert sentence.startswith("pulsed: ")
    assert variable in sentence
    assert "secret" not in sentence


def test_every_problem_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        "DB_HOST": "mysql://pulse:secret@db/pulse",
        "PULSE_GRPC_ADDR": "host:port",
        "PULSE_AUTH_USERS": "ann:secret:boss",
        "PULSE_TLS_KEY": "/tls/key.pem",
        "PULSE_PROCESSES": "none",
        "PULSE_LEASE_TTL": "5s",
        "PULSE_LOG_LEVEL": "loud",
    }
    for variable, value in wrong.items():
        monkeypatch.setenv(variable, value)
    assert main([]) == 1
    sentences = capsys.readouterr().err.splitlines()
    assert len(sentences) == len(wrong)
    for variable in wrong:
        assert sum(variable in sentence for sentence in sentences) == 1
    assert not any("secret" in sentence for sentence in sentences)


def test_setting_that_is_wrong_is_not_reported_as_missing() -> None:
    (only,) = problems_of(PULSE_AUTH_USERS="ann", PULSE_METRICS_AUTH="on", PULSE_HTTP_ADDR="9090")
    assert "PULSE_AUTH_USERS, entry 1" in only


@each_row(
    "variables, problem",
    [
        ({"PULSE_TLS_CERT": "/c"}, "PULSE_TLS_KEY is not set"),
        ({"PULSE_TLS_KEY": "/k"}, "PULSE_TLS_CERT is not set"),
        ({"PULSE_TLS_CLIENT_CA": "/ca"}, "PULSE_TLS_CLIENT_CA needs"),
        ({"PULSE_METRICS_AUTH": "on", "PULSE_HTTP_ADDR": "9090"}, "there are no users"),
        ({"PULSE_METRICS_AUTH": "on", "PULSE_AUTH_USERS": "ann:x"}, "PULSE_HTTP_ADDR is not set"),
        ({"PULSE_LEASE_TTL": "20s"}, "PULSE_LEASE_TTL (20s) must be longer"),
    ],
)
def test_contradiction_is_reported(variables: dict[str, str], problem: str) -> None:
    (only,) = problems_of(**variables)
    assert problem in only


def test_users_of_both_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("bob:w0rd")
    (only,) = problems_of(PULSE_AUTH_USERS="ann:pa55", PULSE_AUTH_USERS_FILE=str(tmp_path / "users"))
    assert "both set" in only


def test_missing_home_matters_only_to_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert read_settings({"DB_HOST": URL}).database_url == URL
    assert read_settings({"PULSE_DATA_DIR": "/data"}).data_directory == Path("/data")
    with pytest.raises(BadSettings, match="PULSE_DATA_DIR") as caught:
        read_settings({"PULSE_LOG_LEVEL": "loud"})
    assert len(caught.value.problems) == 2


def test_secrets_do_not_show_when_settings_are_printed() -> None:
    settings = read_settings({"DB_HOST": URL, "PULSE_AUTH_USERS": "ann:pa55w0rd"})
    assert "secret" not in repr(settings)
    assert "pa55w0rd" not in repr(settings)


def test_connections_are_counted_for_every_process() -> None:
    one, four = (read_settings({"DB_HOST": URL, "PULSE_PROCESSES": number}) for number in ("1", "4"))
    assert four.most_connections == 4 * one.most_connections
