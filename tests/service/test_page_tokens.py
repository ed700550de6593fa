"""Page tokens: each decodes to its key, and nothing else is accepted."""

from __future__ import annotations

import base64
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import PageKey, decode_token, encode_token
from tests.rows import each_row

ID = "0190f3a2-7b1c-7def-8123-456789abcdef"


def forged(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@given(st.datetimes(timezones=st.just(UTC)), st.uuids())
def test_token_leads_back_to_its_key(moment: datetime, job_id: object) -> None:
    key = PageKey(moment, str(job_id))

    assert decode_token(encode_token(key)) == key


@each_row(
    "token",
    [
        "garbage",
        "=",
        "%%%",
        "ü",
        "\ud800",
        "a" * 10_001,
        forged(""),
        forged("|"),
        forged(f"|{ID}"),
        forged(f"yesterday|{ID}"),
        forged(f"2030-01-01T00:00:00|{ID}"),  # no time zone
        forged("2030-01-01T00:00:00+00:00|"),
        forged("2030-01-01T00:00:00+00:00|7"),
        forged(f"2030-13-01T00:00:00+00:00|{ID}"),
        forged(f"9999-12-31T23:59:59-14:00|{ID}"),  # past the end of the calendar in UTC
        forged(f"0001-01-01T00:00:00+14:00|{ID}"),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_token_that_was_never_given_out_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        decode_token(token)
    assert refusal.value.field == "page_token"


@given(st.text())
def test_no_text_breaks_the_reading_of_tokens(token: str) -> None:
    with suppress(InvalidArgument):
        decode_token(token)
