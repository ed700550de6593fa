"""Checks names that an application chooses: of steps and signals, and the keys of unique jobs."""

from __future__ import annotations

from pulse.errors import InvalidArgument


def check_unicode(what: str, name: str) -> None:
    """Raise InvalidArgument for a text with a lone surrogate: no server could receive it."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{what} {name!r} cannot be stored: its character {error.start} is a lone surrogate. Decode the "
            "text as UTF-8, or replace the character."
        ) from None
