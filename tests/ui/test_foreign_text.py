"""Text of others: what is written out, here and at a terminal."""

from __future__ import annotations

import sys

from pulse_cli.text import printable
from pulse_ui.views import foreign_text


def test_a_browser_writes_out_whatever_a_terminal_does() -> None:
    """They have a list each, and one that knew less would let somebody through on one side."""
    characters = (chr(number) for number in range(sys.maxunicode + 1) if not 0xD800 <= number <= 0xDFFF)
    hidden = [one for one in characters if printable.one_line(one) != one]
    assert hidden
    assert [one for one in hidden if foreign_text.one_line(one) != printable.one_line(one)] == []


def test_errors_are_summed_up_alike() -> None:
    for error in (
        "",
        "ValueError: no\nmore",
        "Traceback (most recent call last):\n  x\nKeyError: 'a'\n",
        "\n\x1b[1m",
    ):
        assert foreign_text.summary(error) == printable.summary(error)
