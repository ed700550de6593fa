"""How an attempt can end, and what a handler may raise to choose it."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pulse import tuning
from pulse.errors import InvalidArgument

_HERE = str(Path(__file__).parent)


class Retry(Exception):
    """Raise it in a handler to run the job again later, after a wait of your choice.

    It counts as an attempt, like any failure: the last attempt goes to the dead letters. Without
    `after` the server's usual backoff applies.
    """

    def __init__(self, after: timedelta | None = None, reason: str = "") -> None:
        if after is not None and after < timedelta(0):
            raise InvalidArgument(f"Retry(after=…) cannot lie in the past, but {after} was given.")
        super().__init__(reason or "The handler asked to be run again.")
        self.after = after
        self.reason = reason


class Discard(Exception):
    """Raise it in a handler to send the job to the dead letters now, whatever attempts it has left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "The handler discarded the job.")
        self.reason = reason


class Cancelled(Exception):
    """Raised by `ctx.raise_if_cancelled()` once the job was cancelled or is no longer this worker's."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed; the server decides between another attempt and the dead letters."""

    error: str
    retry_after: timedelta | None = None
    discard: bool = False


SUCCEEDED = Succeeded()
Outcome = Succeeded | Failed


def failure(error: BaseException) -> Failed:
    """Return the outcome that stands for what the handler raised."""
    if isinstance(error, Retry):
        return Failed(clean(_reason(error)), retry_after=error.after)
    if isinstance(error, Discard):
        return Failed(clean(_reason(error)), discard=True)
    return Failed(describe(error))


def describe(error: BaseException) -> str:
    """Return type, message and the last lines of the traceback, fit to be stored."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be printed)"
    name = type(error).__qualname__
    lines = [f"{name}: {text}" if text else name]
    # The frames of the SDK itself tell a user nothing, and they always come first.
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_HERE)
    ]
    if frames:
        lines.append("")
        lines.extend(line.rstrip() for line in traceback.format_list(frames[-tuning.TRACEBACK_FRAMES :]))
    return clean("\n".join(lines))


def clean(text: str) -> str:
    """Return the text without NUL (Postgres refuses it), as valid UTF-8, cut at 8 KiB."""
    text = text.replace("\x00", "")
    if len(text) * 4 <= tuning.ERROR_BYTES and text.isascii():
        return text
    return text.encode("utf-8", "replace")[: tuning.ERROR_BYTES].decode("utf-8", "ignore")


def _reason(error: Retry | Discard) -> str:
    if not error.reason and error.__cause__ is not None:
        return f"{error} {describe(error.__cause__)}"
    return str(error)
