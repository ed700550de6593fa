"""The settings of `pulse-ui`, and the sentences for invalid ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pulse_ui.settings import OPTIONS, BadSettings, Settings, parser, read_settings
from tests.rows import each_row


def read(*arguments: str, **environ: str) -> Settings:
    return read_settings(arguments, environ)


def test_default_is_this_machine_only() -> None:
    settings = read()
    assert (settings.address, settings.is_loopback, settings.read_only) == (
        "http://127.0.0.1:8080",
        True,
        False,
    )


def test_flag_counts_more_than_the_environment() -> None:
    assert read("--addr", "127.0.0.1:1", PULSE_UI_ADDR="127.0.0.1:2").port == 1
    assert read(PULSE_UI_ADDR="127.0.0.1:2").port == 2


@each_row(
    "address, host, port",
    [("[::1]:80", "::1", 80), (":9000", "0.0.0.0", 9000), ("jobs.internal:80", "jobs.internal", 80)],
)
def test_address_is_host_and_port(address: str, host: str, port: int) -> None:
    settings = read("--addr", address)
    assert (settings.host, settings.port) == (host, port)


@each_row("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_is_known(host: str) -> None:
    assert Settings(host=host).is_loopback


@each_row("host", ["0.0.0.0", "::", "10.0.0.1", "jobs.internal"])
def test_what_others_can_reach_is_not_loopback(host: str) -> None:
    assert not Settings(host=host).is_loopback


@each_row(
    "text, origin",
    [
        ("https://jobs.example.com", "https://jobs.example.com"),
        ("https://jobs.example.com/", "https://jobs.example.com"),
        ("http://[::1]:81", "http://[::1]:81"),
    ],
)
def test_public_url_is_an_origin(text: str, origin: str) -> None:
    assert read("--public-url", text).public_url == origin


@each_row("text, is_on", [("on", True), ("1", True), ("off", False), ("", False)])
def test_read_only_is_on_or_off(text: str, is_on: bool) -> None:
    assert read(PULSE_UI_READ_ONLY=text).read_only is is_on


def test_bare_read_only_is_on() -> None:
    assert read("--read-only").read_only


def test_idle_time_is_a_span() -> None:
    assert read("--session-idle", "8h").session_idle == timedelta(hours=8)


@each_row(
    "arguments, named",
    [
        (["--addr", "8080"], "PULSE_UI_ADDR"),
        (["--addr", "localhost:99999"], "PULSE_UI_ADDR"),
        (["--addr", "localhost:web"], "PULSE_UI_ADDR"),
        (["--public-url", "jobs.example.com"], "PULSE_UI_PUBLIC_URL"),
        (["--public-url", "https://jobs.example.com/pulse"], "PULSE_UI_PUBLIC_URL"),
        (["--public-url", "https://jobs.example.com:port"], "PULSE_UI_PUBLIC_URL"),
        (["--session-idle", "soon"], "PULSE_UI_SESSION_IDLE"),
        (["--session-idle", "0m"], "PULSE_UI_SESSION_IDLE"),
        (["--read-only=maybe"], "PULSE_UI_READ_ONLY"),
        (["--tls-cert", "/nowhere"], "PULSE_UI_TLS_CERT"),
        (["--log-level", "loud"], "PULSE_UI_LOG_LEVEL"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: list[str], named: str) -> None:
    with pytest.raises(BadSettings, match=named):
        read(*arguments)


def test_certificate_without_key_is_refused(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    certificate.touch()
    with pytest.raises(BadSettings, match="PULSE_UI_TLS_KEY is missing"):
        read("--tls-cert", str(certificate))


def test_help_lists_every_setting_and_its_variable() -> None:
    text = parser().format_help()
    assert [option.flag for option in OPTIONS if option.flag not in text] == []
    assert [option.variable for option in OPTIONS if option.variable not in text] == []
