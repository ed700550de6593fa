"""The flags of `pulsed`, and its help."""

import re

import pytest

from pulse_server.main import main
from pulse_server.settings import (
    OPTIONS,
)
from tests.rows import each_row
from tests.server.settings_problems import URL


def test_flag_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DB_HOST", URL)
    monkeypatch.setenv("PULSE_GRPC_ADDR", "good:1")
    assert main(["--grpc-addr", "bad:port"]) == 1
    assert "bad:port" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--grpc-addr", "bad:port", "migrate"], ["migrate", "--grpc-addr", "bad:port"]]
)
def test_flag_may_stand_on_either_side_of_the_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DB_HOST", URL)
    assert main(arguments) == 1
    assert "bad:port" in capsys.readouterr().err


def test_help_lists_every_setting_with_its_flag_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    for option in OPTIONS:
        default = f" ({option.default})" if option.default else ""
        assert f"{option.variable} {option.flag or '(no flag'}" in text
        assert f"{option.help}{default}" in text


def test_secrets_have_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert {option.variable for option in OPTIONS if option.flag is None} == {"DB_HOST", "PULSE_AUTH_USERS"}
    for flag in ("--db-host", "--auth-users"):
        with pytest.raises(SystemExit):
            main([flag, "x"])


@each_row(
    "arguments", [["serve"], ["migrate", "down"], ["--port", "1"], ["--grpc", "1"], ["check", "--grpc", "1"]]
)
def test_wrong_call_has_an_exit_code_of_its_own(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: pulsed" in capsys.readouterr().err


@each_row("command", ["check", "migrate"])
def test_help_of_a_command_is_its_own(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: pulsed {command} [")
    assert "`pulsed --help`" in text
