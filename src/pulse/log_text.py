"""Text from outside, fit for a line of a log: printable, on one line, bounded."""

from __future__ import annotations

_MOST_CHARACTERS = 500


def in_a_line(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return the text with control and invisible characters escaped, cut to this many characters.

    Topics, errors and metadata come from producers and handlers: a line break in one would forge a line of
    the log, and an escape sequence would reach the terminal that shows it.
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in text
    )
