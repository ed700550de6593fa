"""A payload is untrusted: it is shown as text, within bounds, and never as markup."""

from __future__ import annotations

import json
import re

from markupsafe import Markup

from pulse_ui.words import SHOWN_AT_FIRST, SHOWN_AT_MOST, payload_view
from tests.rows import each_row


def text_of(markup: Markup) -> str:
    """What a browser shows of it."""
    return Markup(re.sub("<[^>]*>", "", markup)).unescape()


def tags_of(markup: str) -> set[str]:
    return set(re.findall(r"<[^>]*>", markup))


def test_json_is_laid_out_with_one_value_on_each_line() -> None:
    view = payload_view(b'{"to":"a@b.c","tries":[1,2.50],"none":null,"empty":{}}')

    assert view.kind == "JSON"
    assert text_of(view.markup) == (
        '{\n  "to": "a@b.c",\n  "tries": [\n    1,\n    2.50\n  ],\n  "none": null,\n  "empty": {}\n}'
    )


def test_names_strings_numbers_and_words_are_distinguished() -> None:
    markup = payload_view(b'{"name":"text","n":1,"w":null}').markup

    assert (
        '<span class="json-name">&#34;name&#34;</span>: <span class="json-string">&#34;text&#34;</span>'
        in markup
    )
    assert '<span class="json-number">1</span>' in markup
    assert '<span class="json-word">null</span>' in markup


def test_numbers_stay_as_they_were_written() -> None:
    assert (
        text_of(payload_view(b"[1e400,10000000000000000000001]").markup)
        == "[\n  1e400,\n  10000000000000000000001\n]"
    )


@each_row(
    "hostile",
    [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "</pre><style>*{display:none}</style>",
        "\"'><svg onload=alert(1)>",
        "<!-- ",
        "{{ 7 * 7 }}",
    ],
)
def test_markup_in_a_payload_stays_text(hostile: str) -> None:
    ours = {'<span class="json-name">', '<span class="json-string">', "</span>"}

    assert tags_of(payload_view(json.dumps({hostile: hostile}).encode()).markup) == ours
    assert tags_of(payload_view(f"no JSON {hostile}".encode()).markup) == set()
    assert tags_of(payload_view(b"\xff" + hostile.encode()).markup) == set()


def test_characters_that_turn_the_direction_of_writing_are_written_out() -> None:
    in_json = payload_view('{"a":"user\u202egpj.exe\u200b"}'.encode()).markup
    in_text = payload_view("user\u202egpj.exe \x1b[31m".encode()).markup

    assert "user\\u202egpj.exe\\u200b" in in_json
    assert "user\\u202egpj.exe \\x1b[31m" in in_text


def test_text_that_is_not_json_is_shown_as_it_is() -> None:
    view = payload_view(b"first\nsecond, {not json}")

    assert (view.kind, view.markup) == ("text", "first\nsecond, {not json}")


def test_bytes_are_shown_in_hexadecimal_beside_their_letters() -> None:
    view = payload_view(b"\xff\x00<b>")

    assert view.kind == "binary"
    assert view.markup.startswith("000000  ff 00 3c 62 3e ")
    assert view.markup.endswith(" ..&lt;b&gt;")


def test_an_empty_payload_is_marked_empty() -> None:
    assert payload_view(b"").kind == "empty"


def test_a_large_payload_is_cut_and_more_of_it_can_be_asked_for() -> None:
    payload = json.dumps({"rows": ["x" * 20] * 40_000}).encode()
    at_first, whole = payload_view(payload), payload_view(payload, whole=True)

    assert (at_first.kind, at_first.is_cut, at_first.shown) == ("JSON", True, SHOWN_AT_FIRST)
    assert (whole.is_cut, whole.shown, whole.size) == (True, SHOWN_AT_MOST, len(payload))


def test_a_cut_never_splits_a_character() -> None:
    view = payload_view(("a" + "€" * SHOWN_AT_FIRST).encode())

    assert view.kind == "text"
    assert set(view.markup) == {"a", "€"}


def test_a_string_that_was_cut_off_stays_a_string() -> None:
    payload = json.dumps({"text": "<b>" * SHOWN_AT_FIRST}).encode()

    assert tags_of(payload_view(payload).markup) == {
        '<span class="json-name">',
        '<span class="json-string">',
        "</span>",
    }


@each_row(
    "payload",
    [
        b"[" * 500_000 + b"]" * 500_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" + b"[]," * 300_000 + b"[]]",
        b'"' + b"\\\\" * 500_000 + b'"',
        b"\x00" * 1_048_576,
        b" " * 1_048_576,
    ],
)
def test_what_is_shown_of_a_payload_is_bounded_whatever_it_holds(payload: bytes) -> None:
    for whole in (False, True):
        view = payload_view(payload, whole=whole)
        # At the deepest each byte stands on a line of its own, behind its indentation.
        assert len(view.markup) <= view.shown * 60


def test_what_is_deeply_nested_is_not_indented_without_end() -> None:
    lines = text_of(payload_view(b"[" * 100 + b"1" + b"]" * 100).markup).splitlines()

    assert max(len(line) - len(line.lstrip()) for line in lines) == 48
