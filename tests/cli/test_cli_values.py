"""Durations, moments, tables and foreign text, as they are read and written."""

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_cli.inputs import past_moment
from pulse_cli.output import payload_shape, plain
from pulse_cli.running import changed
from pulse_cli.terminal import (
    Cell,
    Column,
    age,
    ago,
    bar,
    compact,
    cut,
    cut_line,
    lay_out,
    line_width,
    sparkline,
)
from pulse_text import printable
from pulse_text.times import now
from tests.rows import each_row

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


@each_row(
    "seconds, text", [(0.4, "now"), (-0.4, "now"), (180, "3m ago"), (-7200, "in 2h"), (86400, "1d ago")]
)
def test_moment_is_relative_to_now(seconds: float, text: str) -> None:
    assert ago(NOON - timedelta(seconds=seconds), NOON) == text


@each_row("text, seconds", [("2h", 7200), ("0s", 0)])
def test_past_moment_is_how_long_ago_or_when(text: str, seconds: float) -> None:
    assert abs((now() - past_moment(text)).total_seconds() - seconds) < 5
    assert past_moment("2030-01-31T13:00+01:00") == NOON


@each_row("text", ["yesterday", "2", "9999999w"])
def test_what_is_not_a_past_moment_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"\.$"):
        past_moment(text)


def test_age_is_never_less_than_nothing() -> None:
    assert age(NOON + timedelta(seconds=5), NOON) == "0s"
    assert age(NOON - timedelta(seconds=90), NOON) == "1m30s"
    assert age(None, NOON) == "–"


# ---------------------------------------------------------------- numbers


@each_row(
    "number, text",
    [(0, "0"), (99_999, "99,999"), (100_000, "100k"), (999_999, "999k"), (1_250_000, "1.2M"), (10**12, "1T")],
)
def test_count_is_written_in_six_characters(number: int, text: str) -> None:
    assert compact(number) == text


@given(st.integers(min_value=0, max_value=10**15))
def test_count_never_needs_more_room(number: int) -> None:
    assert len(compact(number)) <= 6


def test_sparkline_goes_from_nothing_to_the_largest() -> None:
    assert sparkline([0, 5, 10]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 30))
def test_bar_shows_whatever_is_more_than_nothing(value: int, largest: int, width: int) -> None:
    drawn = bar(min(value, largest), largest, width)
    assert len(drawn) <= width
    assert bool(drawn) == (value > 0)


# ---------------------------------------------------------------- tables

COLUMNS = [Column("ID"), Column("TOPIC", shortest=6, drop=1), Column("NOTE", shortest=5, drop=2)]
ROWS = [[Cell("0123456789"), Cell("a-long-topic"), Cell("words upon words")]]


def text_of(width: int | None) -> list[str]:
    return ["".join(cell.text for cell in line) for line in lay_out(COLUMNS, ROWS, width)]


def test_table_without_a_width_cuts_nothing() -> None:
    assert text_of(None)[1] == "0123456789  a-long-topic  words upon words"


@each_row("width", range(10, 60))
def test_table_is_never_wider_than_the_terminal(width: int) -> None:
    for line in text_of(width):
        assert len(line.rstrip()) <= width


def test_table_shrinks_before_it_drops() -> None:
    assert "…" in text_of(30)[1]
    assert "NOTE" in text_of(30)[0]
    assert "NOTE" not in text_of(20)[0]
    assert text_of(12)[0].strip() == "ID"


def test_wide_characters_count_double() -> None:
    assert cut("日本語の", 5) == "日本…"


# ---------------------------------------------------------------- text of others


@given(st.text())
def test_foreign_text_has_no_control_characters_left(text: str) -> None:
    assert all(character.isprintable() or character not in "\x1b\r\n\t\x9b" for character in plain(text))
    assert "\n" not in printable.one_line(text)


@each_row("payload", [b"NaN", b"{", b"\xff", b"[" * 100_000])
def test_payload_that_is_not_json_is_base64(payload: bytes) -> None:
    shape = payload_shape(payload)
    assert shape["payload"] is None
    assert shape["payload_base64"]


def test_changed_files_are_new_gone_or_different() -> None:
    assert changed({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "d": 1}) == {"b", "c", "d"}


@given(st.lists(st.text(alphabet="ab日🙂", max_size=6), max_size=5), st.integers(1, 20))
def test_cut_line_is_no_wider_than_its_limit(texts: list[str], width: int) -> None:
    line = [Cell(text) for text in texts]
    shorter = cut_line(line, width)
    assert line_width(shorter) <= width
    if line_width(line) <= width:
        assert shorter == line
