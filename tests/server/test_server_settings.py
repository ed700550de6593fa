"""What an operator may set, and what is said when it is wrong."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from pulse_server.main import main
from pulse_server.settings import BadSettings, Settings, parse_address, parse_duration, read_settings

URL = "postgres://pulse:secret@db.example/pulse"


class Recording(Mapping[str, str]):
    """An environment in which nothing is set but the database, and which remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_everything_has_a_default() -> None:
    settings = read_settings({"DB_HOST": URL})
    assert settings == Settings(grpc_address="127.0.0.1:50051", database_url=URL)
    assert settings.lease_ttl == timedelta(seconds=30)
    assert settings.heartbeat_interval == timedelta(seconds=10)
    assert settings.watchdog_interval == timedelta(seconds=10)
    assert settings.dispatch_interval == timedelta(milliseconds=500)


def test_empty_values_count_as_unset() -> None:
    names = ("PULSE_GRPC_ADDR", "PULSE_LEASE_TTL", "PULSE_LOG_LEVEL", "PULSE_DRAIN_TIMEOUT")
    assert read_settings({"DB_HOST": URL} | dict.fromkeys(names, "")) == read_settings({"DB_HOST": URL})


def test_each_setting_is_read_from_its_variable() -> None:
    settings = read_settings(
        {
            "DB_HOST": URL,
            "PULSE_GRPC_ADDR": "0.0.0.0:7000",
            "PULSE_LEASE_TTL": "1h",
            "PULSE_HEARTBEAT_INTERVAL": "2m",
            "PULSE_WATCHDOG_INTERVAL": "3s",
            "PULSE_DISPATCH_INTERVAL": "40ms",
            "PULSE_DRAIN_TIMEOUT": "5.5",
            "PULSE_LOG_LEVEL": "DEBUG",
        }
    )
    assert settings == Settings(
        grpc_address="0.0.0.0:7000",
        database_url=URL,
        log_level="debug",
        lease_ttl=timedelta(hours=1),
        heartbeat_interval=timedelta(minutes=2),
        watchdog_interval=timedelta(seconds=3),
        dispatch_interval=timedelta(milliseconds=40),
        drain_timeout=timedelta(seconds=5.5),
    )


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("", "127.0.0.1:50051"),
        ("6000", "127.0.0.1:6000"),
        (":6000", "127.0.0.1:6000"),
        ("localhost", "localhost:50051"),
        ("localhost:6000", "localhost:6000"),
        ("[::1]:6000", "[::1]:6000"),
        (" 0.0.0.0:0 ", "0.0.0.0:0"),
    ],
)
def test_address_may_be_a_port_or_a_host_or_both(given: str, address: str) -> None:
    assert parse_address(given) == address


@pytest.mark.parametrize("address", [":", "localhost:", "localhost:http", "65536", "host:99999", "host:²"])
def test_bad_address_is_named(address: str) -> None:
    with pytest.raises(BadSettings, match="PULSE_GRPC_ADDR"):
        parse_address(address)


@pytest.mark.parametrize(
    "duration", ["0", "0s", "-1s", "soon", "1d", "1 2", "0.0001ms", "9" * 400, "1e3", "s"]
)
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
    ],
)
def test_wrong_setting_ends_pulsed_with_a_sentence_that_names_it(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DB_HOST", URL)
    monkeypatch.setenv(variable, value)
    assert main([]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    (sentence,) = told.err.splitlines()
    assert sentence.startswith("pulsed: ")
    assert variable in sentence
    assert "secret" not in sentence


def test_flag_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DB_HOST", URL)
    monkeypatch.setenv("PULSE_GRPC_ADDR", "good:1")
    assert main(["--grpc-addr", "bad:port"]) == 1
    assert "bad:port" in capsys.readouterr().err


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    asked = Recording()
    read_settings(asked)
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    settings = {name for name in asked.asked if name.startswith(("PULSE_", "DB_"))}
    assert len(settings) >= 9
    assert settings <= listed


@pytest.mark.parametrize("arguments", [["serve"], ["migrate", "down"], ["--port", "1"]])
def test_wrong_call_is_told_apart_from_a_failure(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: pulsed" in capsys.readouterr().err
