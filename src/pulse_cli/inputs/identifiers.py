"""Ids of jobs, as they are typed: whole, or as much of the beginning as no other job shares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pulse_cli import tuning
from pulse_cli.failures import NOT_FOUND, Failure, Misuse

if TYPE_CHECKING:
    from pulse import SyncPulse

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART = re.compile(r"[0-9a-f-]+")


def job_ids(client: SyncPulse, typed: Iterable[str]) -> list[str]:
    """Return the ids that were meant, each once. Nothing has happened to any of them if this raises."""
    # All are looked at before the server is asked: what cannot be an id is said at once.
    known = [(text, _checked(text)) for text in typed]
    return list(dict.fromkeys(_whole(client, *one) for one in known))


def job_id(client: SyncPulse, typed: str) -> str:
    """Return the id that was meant. Raises Misuse if it could be several, Failure if there is none."""
    return _whole(client, typed, _checked(typed))


def is_whole_id(text: str) -> bool:
    """True for an id of 36 characters."""
    return _ID.fullmatch(text.strip().lower()) is not None


def _checked(typed: str) -> str:
    text = typed.strip().lower()
    digits = text.replace("-", "")
    if not _PART.fullmatch(text) or len(digits) > 32:
        raise Misuse(f"{typed!r} is not the id of a job: copy one from `pulse jobs list`.")
    if len(digits) < tuning.SHORTEST_PREFIX:
        raise Misuse(f"{typed!r} is too little of an id: type {tuning.SHORTEST_PREFIX} characters or more.")
    return text


def _whole(client: SyncPulse, typed: str, text: str) -> str:
    if _ID.fullmatch(text):
        return text
    match client.find_jobs(text):
        case []:
            raise Failure(f"There is no job whose id begins with {typed!r}. See: pulse jobs list", NOT_FOUND)
        case [found]:
            return found
        case several:
            named = ", ".join(several[: tuning.CANDIDATES_NAMED])
            more = " and more" if len(several) > tuning.CANDIDATES_NAMED else ""
            raise Misuse(
                f"{typed!r} is the beginning of several ids: {named}{more}. "
                "Type more of it: an id begins with its time, so jobs of one moment differ further back."
            )
