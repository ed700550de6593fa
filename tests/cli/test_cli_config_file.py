"""`pulse save creds` and `pulse config`: the file, its mode, its contexts."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from pulse_cli.connection import ConfigFile, read_config, write_config
from tests.cli.command_line import CommandLine, ended
from tests.cli.terminal import PATIENCE_SECONDS


def save(pulse: CommandLine, *options: str, stdin: str = "") -> Any:
    return pulse("save", "creds", "--no-check", *options, stdin=stdin)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_file_and_directory_are_for_their_owner_only(alone: CommandLine) -> None:
    before = os.umask(0)
    try:
        assert save(alone, "--addr", "saved:1", "--user", "ops", "--password-stdin", stdin="pw\n").code == 0
    finally:
        os.umask(before)
    assert mode(alone.config_path) == 0o600
    assert mode(alone.config_path.parent) == 0o700
    saved = json.loads(alone.config_path.read_text())
    assert saved == {
        "current": "default",
        "contexts": {"default": {"address": "saved:1", "user": "ops", "password": "pw", "tls": False}},
    }


def test_xdg_directory_is_honored(alone: CommandLine, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    result = alone("save", "creds", "--no-check", "--addr", "x:1", XDG_CONFIG_HOME=str(elsewhere))
    assert result.code == 0
    assert (elsewhere / "pulse" / "config.json").exists()


def test_file_that_others_can_read_is_closed_at_the_next_save(alone: CommandLine) -> None:
    save(alone, "--addr", "saved:1")
    alone.config_path.chmod(0o644)
    alone.config_path.parent.chmod(0o755)
    save(alone, "--addr", "saved:2")
    assert (mode(alone.config_path), mode(alone.config_path.parent)) == (0o600, 0o700)


def test_file_that_others_can_read_is_warned_about(alone: CommandLine) -> None:
    save(alone, "--addr", "saved:1")
    assert alone("config", "show").err == ""
    alone.config_path.chmod(0o640)
    result = alone("config", "show", "-o", "json")
    assert result.code == 0
    assert "chmod 600" in result.err
    assert "mode 0640" in result.err


def test_file_is_replaced_at_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "pulse" / "config.json"
    write_config(ConfigFile(path, "a", {"a": {"address": "a:1"}}))
    before = path.stat().st_ino
    write_config(ConfigFile(path, "a", {"a": {"address": "a:2"}}))
    assert path.stat().st_ino != before
    assert [file.name for file in path.parent.iterdir()] == ["config.json"]
    assert read_config(path).contexts["a"]["address"] == "a:2"


def test_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "config.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    (tmp_path / "pulse").mkdir()
    path = tmp_path / "pulse" / "config.json"
    path.symlink_to(kept)
    write_config(ConfigFile(path, "a", {"a": {"address": "a:1"}}))
    assert path.is_symlink()
    assert read_config(kept).current == "a"


def test_place_that_cannot_be_written_is_named(tmp_path: Path, alone: CommandLine) -> None:
    (tmp_path / ".config").write_text("not a directory")
    result = save(alone, "--addr", "saved:1")
    assert result.code == 2
    assert "cannot be" in result.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"contexts": []}', '"contexts"'),
        ('{"contexts": {"a": {"address": 1}}}', '"address" of the context "a"'),
        ('{"contexts": {"a": {"tls": "yes"}}}', '"tls" of the context "a"'),
        ('{"current": 5}', '"current"'),
    ],
)
def test_broken_file_is_named_and_kept(alone: CommandLine, text: str, sentence: str) -> None:
    alone.config_path.parent.mkdir(parents=True)
    alone.config_path.write_text(text)
    alone.config_path.chmod(0o600)
    for command in (["jobs", "list"], ["save", "creds", "--no-check", "--addr", "x:1"]):
        result = alone(*command)
        assert result.code == 2
        assert str(alone.config_path) in result.err
        assert sentence in result.err
    assert alone.config_path.read_text() == text


# ---------------------------------------------------------------- contexts


def test_first_context_is_current_and_others_are_named(alone: CommandLine) -> None:
    save(alone, "--context", "local", "--addr", "local:1")
    result = save(alone, "--context", "prod", "--addr", "prod:1", "--tls")
    assert "pulse config use prod" in result.out
    assert alone("config", "show", "-o", "json").json["settings"]["address"]["value"] == "local:1"
    shown = alone("config", "show", "--context", "prod", "-o", "json").json["settings"]
    assert (shown["address"]["value"], shown["tls"]["value"]) == ("prod:1", True)
    assert alone("config", "use", "prod").code == 0
    assert alone("config", "show", "-o", "json").json["settings"]["address"]["value"] == "prod:1"
    assert alone("config", "contexts", "-o", "plain").rows == [
        ["local", "false", "local:1", "", "false"],
        ["prod", "true", "prod:1", "", "true"],
    ]
    assert "*  prod" in alone("config", "contexts").out


def test_saving_again_replaces_one_context_only(alone: CommandLine) -> None:
    save(alone, "--context", "a", "--addr", "a:1")
    save(alone, "--context", "b", "--addr", "b:1")
    save(alone, "--context", "a", "--addr", "a:2")
    rows = alone("config", "contexts", "-o", "plain").rows
    assert [row[2] for row in rows] == ["a:2", "b:1"]


def test_deleted_context_is_gone(alone: CommandLine) -> None:
    save(alone, "--context", "a", "--addr", "a:1")
    assert alone("config", "delete", "a").code == 2
    assert alone("config", "delete", "a", "--yes").code == 0
    result = alone("config", "contexts")
    assert "pulse save creds" in result.err


@pytest.mark.parametrize(
    "command",
    [["--context", "nope", "jobs", "list"], ["config", "use", "nope"], ["config", "delete", "nope"]],
)
def test_unknown_context_names_the_known_ones(alone: CommandLine, command: list[str]) -> None:
    save(alone, "--context", "prod", "--addr", "prod:1")
    result = alone(*command)
    assert result.code == 2
    assert "Known contexts: prod" in result.err


# ---------------------------------------------------------------- asking


def test_terminal_asks_for_what_is_missing_and_shows_no_password(pulse: CommandLine, address: str) -> None:
    with pulse.terminal("save", "creds", PULSE_ADDR="") as child:
        child.expect(r"Address of pulsed \[localhost:50051\]: ")
        child.sendline(address)
        child.expect("User .*: ")
        child.sendline("ops")
        child.expect("Password: ")
        child.sendline("swordfish")
        assert ended(child) == 0
        assert "swordfish" not in child.before
    saved = json.loads(pulse.config_path.read_text())["contexts"]["default"]
    assert (saved["address"], saved["user"], saved["password"]) == (address, "ops", "swordfish")
    assert mode(pulse.config_path) == 0o600


def test_terminal_accepts_an_empty_user(pulse: CommandLine, address: str) -> None:
    with pulse.terminal("save", "creds", "--addr", address) as child:
        child.expect("User .*: ")
        child.sendline("")
        assert ended(child) == 0
    assert "user" not in json.loads(pulse.config_path.read_text())["contexts"]["default"]


def test_ctrl_c_at_a_question_saves_nothing(alone: CommandLine) -> None:
    with alone.terminal("save", "creds") as child:
        child.expect("Address of pulsed")
        child.interrupt_question()
        assert child.process.wait(PATIENCE_SECONDS) == 130
    assert not alone.config_path.exists()


def test_pipe_without_password_says_how_to_give_it(alone: CommandLine) -> None:
    result = save(alone, "--addr", "x:1", "--user", "ops")
    assert result.code == 2
    assert "--password-stdin" in result.err
    assert save(alone, "--addr", "x:1", "--user", "ops", "--password-stdin").code == 2


def test_unavailable_server_is_a_warning_and_saved_anyway(alone: CommandLine) -> None:
    result = alone("save", "creds", "--addr", "127.0.0.1:1", "--timeout", "200ms")
    assert result.code == 0
    assert "the login was not checked" in result.err
    assert alone.config_path.exists()
