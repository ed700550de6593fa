"""The addresses that `pulsed` listens on, by its settings."""

import pytest

from pulse_server.settings import (
    BadSettings,
    parse_address,
    read_settings,
)
from tests.rows import each_row
from tests.server.settings_problems import LOOPBACK, URL, problems_of


@each_row(
    "variables, addresses",
    [
        ({}, (f"{LOOPBACK}:6000", f"{LOOPBACK}:9000")),
        ({"PULSE_AUTH_USERS": "ann:pa55"}, ("[::]:6000", "[::]:9000")),
    ],
)
def test_address_without_a_host_is_loopback_until_there_are_users(
    variables: dict[str, str], addresses: tuple[str, str]
) -> None:
    settings = read_settings(
        {"DB_HOST": URL, "PULSE_GRPC_ADDR": ":6000", "PULSE_HTTP_ADDR": "9000"} | variables
    )
    assert (settings.grpc_address, settings.http_address) == addresses


def test_http_may_be_a_unix_socket() -> None:
    assert read_settings({"DB_HOST": URL, "PULSE_HTTP_ADDR": "unix:/run/pulse.sock"}).http_address == (
        "unix:/run/pulse.sock"
    )
    assert "PULSE_HTTP_ADDR" in problems_of(PULSE_HTTP_ADDR="unix:pulse.sock")[0]


def test_http_has_no_default_port() -> None:
    assert "PULSE_HTTP_ADDR" in problems_of(PULSE_HTTP_ADDR="localhost")[0]


@each_row(
    "given, address",
    [
        ("6000", "127.0.0.1:6000"),
        (":6000", "127.0.0.1:6000"),
        ("localhost", "localhost:50051"),
        ("localhost:6000", "localhost:6000"),
        ("[::1]:6000", "[::1]:6000"),
        ("[::1]", "[::1]:50051"),
        (" 0.0.0.0:0 ", "0.0.0.0:0"),
    ],
)
def test_address_may_be_a_port_or_a_host_or_both(given: str, address: str) -> None:
    assert parse_address(given).in_full(LOOPBACK) == address


@each_row(
    "address",
    [
        ":",
        "localhost:",
        "localhost:http",
        "65536",
        "host:99999",
        "host:²",
        "::1",
        "::1:80",
        "http://host:80",
        "a b:1",
    ],
)
def test_bad_address_is_named(address: str) -> None:
    with pytest.raises(BadSettings, match="PULSE_GRPC_ADDR"):
        parse_address(address)


@each_row(
    "addresses",
    [("6000", "6000"), ("", ":50051"), ("127.0.0.1:6000", "6000"), ("[::1]:6000", "[::1]:6000")],
)
def test_both_ports_cannot_be_the_same(addresses: tuple[str, str]) -> None:
    grpc_address, http_address = addresses
    with pytest.raises(BadSettings, match="PULSE_GRPC_ADDR and PULSE_HTTP_ADDR are both"):
        read_settings({"DB_HOST": URL, "PULSE_GRPC_ADDR": grpc_address, "PULSE_HTTP_ADDR": http_address})


def test_port_that_the_system_chooses_may_be_asked_for_twice() -> None:
    read_settings({"DB_HOST": URL, "PULSE_GRPC_ADDR": "0", "PULSE_HTTP_ADDR": "0"})


@each_row("address", ["0.0.0.0:1", "[::]:1", "10.0.0.7:1", "pulse.internal:1"])
def test_open_server_on_an_address_that_others_can_reach_is_refused_unless_that_is_asked_for(
    address: str,
) -> None:
    (only,) = problems_of(PULSE_GRPC_ADDR=address)
    assert f"PULSE_GRPC_ADDR is {address}, which others can reach" in only
    assert "PULSE_INSECURE_OPEN_TO_NETWORK=on" in only
    assert problems_of(PULSE_GRPC_ADDR=address, PULSE_INSECURE_OPEN_TO_NETWORK="off") == (only,)
    for who_gets_in in (
        {"PULSE_INSECURE_OPEN_TO_NETWORK": "on"},
        {"PULSE_AUTH_USERS": "ann:pa55"},
        {"PULSE_TLS_CERT": "c", "PULSE_TLS_KEY": "k", "PULSE_TLS_CLIENT_CA": "a"},
    ):
        assert read_settings({"DB_HOST": URL, "PULSE_GRPC_ADDR": address, **who_gets_in})


@each_row("address", ["", "6000", ":6000", "localhost", "127.0.0.1:0", "[::1]:6000"])
def test_open_server_on_loopback_needs_nothing(address: str) -> None:
    assert read_settings({"DB_HOST": URL, "PULSE_GRPC_ADDR": address}).is_open
