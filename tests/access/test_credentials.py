"""The Authorization header: which forms are accepted, and which refused."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_server.access.service import BadCredentials, Credentials
from tests.rows import each_row


def basic(raw: bytes) -> str:
    return f"Basic {base64.b64encode(raw).decode()}"


def test_password_may_have_colons_and_any_bytes() -> None:
    read = Credentials.parse(basic("änn:a:b\xff".encode()))
    assert (read.name, read.password) == ("änn", "a:b\xff".encode())
    assert Credentials.parse(basic(b"ann:\xff\xfe")).password == b"\xff\xfe"


@each_row("scheme", ["basic", "BASIC"])
def test_scheme_is_written_in_any_case(scheme: str) -> None:
    assert Credentials.parse(basic(b"ann:one").replace("Basic", scheme)).name == "ann"


@each_row(
    "header",
    [
        "",
        "Basic",
        "Basic ",
        "Bearer YW5uOm9uZQ==",
        "YW5uOm9uZQ==",
        "Basic YW5uOm9uZQ",  # no padding
        "Basic YW5u*m9uZQ==",
        "Basic YW5uOm9uZQ== YW5uOm9uZQ==",
        "Basic ünn",
        basic(b"ann"),  # no colon
        basic(b"\xff:one"),  # a name that is no text
    ],
)
def test_anything_else_is_refused(header: str) -> None:
    with pytest.raises(BadCredentials) as caught:
        Credentials.parse(header)
    assert str(caught.value) == ""
    assert caught.value.__cause__ is None


@given(st.text())
def test_no_header_makes_it_fail_otherwise(header: str) -> None:
    for text in (header, f"Basic {header}"):
        try:
            Credentials.parse(text)
        except BadCredentials:
            continue


def test_password_is_not_shown() -> None:
    assert "tweety" not in repr(Credentials.parse(basic(b"ann:tweety")))
