"""Text of others, made safe to print."""

from __future__ import annotations

import unicodedata

from pulse_text import printable
from tests.rows import each_row


def test_escape_sequences_are_written_out() -> None:
    assert printable.one_line("\x1b[31mred\x9b\u202e") == "\\x1b[31mred\\x9b\\u202e"
    assert printable.lines("a\r\n\tb\x1b") == "a\n\tb\\x1b"


@each_row(
    "error, line",
    [
        ("ValueError: boom\n\n  File x", "ValueError: boom"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "KeyError: 'a'"),
        ("\n\n", ""),
    ],
)
def test_summary_is_the_line_that_says_most(error: str, line: str) -> None:
    assert printable.summary(error) == line


def test_every_character_that_moves_reorders_or_hides_text_is_escaped() -> None:
    controls = [chr(number) for number in range(0x110000) if unicodedata.category(chr(number)) == "Cc"]
    directions = [*"\u061c\u200e\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]
    for character in [*controls, *directions, *"\u200b\u2028\u2029\u2060\ufeff"]:
        assert printable.one_line(character).startswith("\\")
        assert character in "\n\t" or printable.lines(f"é{character}").startswith("é\\")
    assert printable.one_line("é 日本語 👩‍👩‍👧") == "é 日本語 👩‍👩‍👧"


def test_cause_stands_in_front_where_there_is_one() -> None:
    chain = "RenderFailed: page 3 [cause: OSError: [Errno 5] gone]\n\nCaused by OSError: [Errno 5] gone"
    assert printable.cause_first(chain) == "OSError: [Errno 5] gone (from RenderFailed: page 3)"
    assert printable.cause_first("OSError: gone\nmore") == "OSError: gone"
    assert printable.cause_first("it says [cause: x] and goes on") == "it says [cause: x] and goes on"
