"""Where a value comes from: flag, environment, file, default."""

import json
from pathlib import Path
from typing import Any

import pytest

from pulse_cli.connection import FIELDS, ConfigFile, Origin, config_path, is_same_address, resolve
from pulse_cli.failures import Misuse
from tests.cli.command_line import CommandLine
from tests.rows import each_row

FILE = Path("/home/op/.config/pulse/config.json")


def config(**context: Any) -> ConfigFile:
    return ConfigFile(FILE, "prod", {"prod": context})


@each_row("has_flag", [True, False])
@each_row("has_variable", [True, False])
@each_row("has_file", [True, False])
@each_row("name", ["address", "user", "tls_ca", "tls_cert"])
def test_flag_beats_environment_beats_file(
    name: str, has_file: bool, has_variable: bool, has_flag: bool
) -> None:
    variable = FIELDS[name].variable
    assert variable is not None
    settings = resolve(
        {name: "of-flag"} if has_flag else {},
        {variable: "of-variable"} if has_variable else {},
        config(**{name: "of-file"} if has_file else {}),
    )
    setting = settings.values[name]
    if has_flag:
        assert (setting.value, setting.origin, setting.where) == ("of-flag", Origin.FLAG, FIELDS[name].flag)
    elif has_variable:
        assert (setting.value, setting.origin, setting.where) == ("of-variable", Origin.ENVIRONMENT, variable)
    elif has_file:
        assert (setting.value, setting.origin, setting.where) == ("of-file", Origin.FILE, "context prod")
    else:
        assert setting.origin is Origin.DEFAULT


@each_row(
    "flags, variables, context, expected",
    [
        ({}, {}, {}, (False, Origin.DEFAULT)),
        ({}, {}, {"tls": True}, (True, Origin.FILE)),
        ({}, {}, {"tls_ca": "ca.pem"}, (True, Origin.FILE)),
        ({}, {"PULSE_TLS": "off"}, {"tls": True}, (False, Origin.ENVIRONMENT)),
        ({}, {"PULSE_TLS": "on"}, {}, (True, Origin.ENVIRONMENT)),
        ({}, {"PULSE_TLS_CA": "ca.pem"}, {"tls": False}, (True, Origin.ENVIRONMENT)),
        ({}, {"PULSE_TLS_SERVER_NAME": "pulse"}, {}, (True, Origin.ENVIRONMENT)),
        ({"tls": False}, {"PULSE_TLS": "on"}, {"tls": True}, (False, Origin.FLAG)),
        ({"tls": True}, {"PULSE_TLS": "off"}, {}, (True, Origin.FLAG)),
        ({"tls_server_name": "pulse"}, {"PULSE_TLS": "off"}, {}, (True, Origin.FLAG)),
    ],
)
def test_first_source_that_speaks_of_tls_decides(
    flags: dict[str, Any], variables: dict[str, str], context: dict[str, Any], expected: tuple[bool, Origin]
) -> None:
    setting = resolve(flags, variables, config(**context)).values["tls"]
    assert (setting.value, setting.origin) == expected


@each_row(
    "flags, variables, context, expected",
    [
        ({}, {}, {"user": "a", "password": "f"}, ("a", "f")),
        ({}, {"PULSE_USER": "a", "PULSE_PASSWORD": "e"}, {"user": "b", "password": "f"}, ("a", "e")),
        ({}, {"PULSE_PASSWORD": "e"}, {"user": "a", "password": "f"}, ("a", "e")),
        ({}, {"PULSE_USER": "a"}, {"user": "a", "password": "f"}, ("a", "f")),
        ({"user": "a"}, {"PULSE_PASSWORD": "e"}, {}, ("a", "e")),
        ({"user": "a", "password": "i"}, {"PULSE_PASSWORD": "e"}, {}, ("a", "i")),
        # A password of one user is never sent for another.
        ({"user": "x"}, {}, {"user": "a", "password": "f"}, ("x", None)),
        ({}, {"PULSE_USER": "x"}, {"user": "a", "password": "f"}, ("x", None)),
        ({"user": "x"}, {"PULSE_USER": "a", "PULSE_PASSWORD": "e"}, {}, ("x", None)),
        (
            {"user": "b"},
            {"PULSE_USER": "a", "PULSE_PASSWORD": "e"},
            {"user": "b", "password": "f"},
            ("b", "f"),
        ),
    ],
)
def test_password_goes_with_its_user(
    flags: dict[str, Any],
    variables: dict[str, str],
    context: dict[str, Any],
    expected: tuple[str, str | None],
) -> None:
    settings = resolve(flags, variables, config(**context))
    assert (settings["user"], settings["password"]) == expected


@each_row(
    "saved, wanted, is_same",
    [
        ("saved:1", "saved:1", True),
        ("saved:1", "Saved:1", True),
        ("saved:50051", "saved", True),
        ("localhost:50051", "127.0.0.1", True),
        (None, ":50051", True),
        ("[::1]:50051", "[::1]", True),
        ("saved:1", "saved:2", False),
        ("saved:1", "other:1", False),
        ("saved:1", "saved:1.evil.example:1", False),
        ("localhost:50051", "localhost:50052", False),
        (None, "other:50051", False),
    ],
)
@each_row("source", ["flag", "variable"])
def test_saved_credentials_go_to_their_own_address_only(
    source: str, saved: str | None, wanted: str, is_same: bool
) -> None:
    context = {"user": "ops", "password": "f"} | ({"address": saved} if saved else {})
    flags = {"address": wanted} if source == "flag" else {}
    variables = {"PULSE_ADDR": wanted} if source == "variable" else {}
    settings = resolve(flags, variables, config(**context))
    assert (settings["user"], settings["password"]) == (("ops", "f") if is_same else (None, None))
    assert (settings.warning is None) == is_same


def test_credentials_given_beside_another_address_are_used() -> None:
    settings = resolve(
        {"address": "other:1"},
        {"PULSE_USER": "me", "PULSE_PASSWORD": "e"},
        config(address="saved:1", user="ops", password="f"),
    )
    assert (settings["user"], settings["password"], settings.warning) == ("me", "e", None)


def test_key_goes_with_its_certificate() -> None:
    settings = resolve({"tls_cert": "mine.pem"}, {}, config(tls_cert="saved.pem", tls_key="saved.key"))
    assert (settings["tls_cert"], settings["tls_key"]) == ("mine.pem", None)


def test_key_without_certificate_is_misuse() -> None:
    with pytest.raises(Misuse, match="--tls-key"):
        resolve({"tls_key": "mine.key"}, {}, config())


def test_password_without_user_is_misuse() -> None:
    with pytest.raises(Misuse, match="PULSE_PASSWORD"):
        resolve({}, {"PULSE_PASSWORD": "e"}, config())


def test_switch_that_is_neither_on_nor_off_is_misuse() -> None:
    with pytest.raises(Misuse, match="PULSE_TLS"):
        resolve({}, {"PULSE_TLS": "maybe"}, config())


def test_empty_variable_counts_as_none() -> None:
    assert resolve({}, {"PULSE_ADDR": ""}, config(address="saved:1"))["address"] == "saved:1"


@each_row(
    "flags, variables, current, expected",
    [
        ({}, {}, None, "default"),
        ({}, {}, "prod", "prod"),
        ({}, {"PULSE_CONTEXT": "staging"}, "prod", "staging"),
        ({"context": "local"}, {"PULSE_CONTEXT": "staging"}, "prod", "local"),
    ],
)
def test_context_is_chosen_in_the_same_order(
    flags: dict[str, Any], variables: dict[str, str], current: str | None, expected: str
) -> None:
    names = ("default", "prod", "staging", "local")
    saved = ConfigFile(FILE, current, {name: {"address": f"{name}:1"} for name in names})
    assert resolve(flags, variables, saved)["address"] == f"{expected}:1"


@each_row(
    "variables, expected",
    [
        ({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/pulse/config.json"),
        ({"HOME": "/h"}, "/h/.config/pulse/config.json"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/.config/pulse/config.json"),
        ({"XDG_CONFIG_HOME": "", "HOME": "/h"}, "/h/.config/pulse/config.json"),
    ],
)
def test_file_is_where_xdg_says(variables: dict[str, str], expected: str) -> None:
    assert config_path(variables) == Path(expected)


# ---------------------------------------------------------------- as the commands do it


def test_config_show_names_the_source_of_each_value(alone: CommandLine) -> None:
    alone.config_path.parent.mkdir(parents=True)
    saved = {"address": "saved:1", "user": "ops", "password": "secret-of-file", "tls": True}
    alone.config_path.write_text(json.dumps({"current": "prod", "contexts": {"prod": saved}}))
    alone.config_path.chmod(0o600)
    result = alone("config", "show", "--tls-ca", "ca.pem", "-o", "json", PULSE_ADDR="SAVED:1")
    shown = result.json["settings"]
    assert result.json["path"] == str(alone.config_path)
    assert shown["address"] == {"value": "SAVED:1", "origin": "environment", "where": "PULSE_ADDR"}
    assert shown["tls_ca"] == {"value": "ca.pem", "origin": "flag", "where": "--tls-ca"}
    assert shown["user"] == {"value": "ops", "origin": "file", "where": "context prod"}
    assert shown["context"]["value"] == "prod"
    for form in ("json", "table", "plain"):
        shown_in_form = alone("config", "show", "-o", form)
        assert "secret-of-file" not in shown_in_form.out + shown_in_form.err
        assert "********" in shown_in_form.out


def test_config_show_at_a_terminal(alone: CommandLine) -> None:
    shown = alone.screen("config", "show").out
    assert "localhost:50051" in shown
    assert "pulse save creds" in shown


def test_flags_may_stand_before_the_command_or_after_it(alone: CommandLine) -> None:
    before = alone("--addr", "flag:1", "-o", "json", "config", "show").json
    after = alone("config", "show", "--addr", "flag:1", "-o", "json").json
    assert before == after
    last = alone("--addr", "first:1", "config", "show", "--addr", "second:1", "-o", "json").json
    assert last["settings"]["address"]["value"] == "second:1"


@each_row(
    "address, other, is_same",
    [
        ("a,b", "b:50051, a:50051", True),
        (":50051", "127.0.0.1", True),
        ("a,b", "a", False),
        ("a:1,b", "a,b", False),
    ],
)
def test_addresses_are_compared_by_their_servers(address: str, other: str, is_same: bool) -> None:
    """Saved credentials are sent to these servers only."""
    assert is_same_address(address, other) is is_same
