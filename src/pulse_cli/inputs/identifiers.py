"""Ids of jobs as they are typed: whole, or a prefix that no other job shares."""

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
    """Resolve ids and prefixes, each once. Raises before anything is changed."""
    # Check all before calling the server, so that a typo is reported at once.
    known = [(text, _checked(text)) for text in typed]
    return list(dict.fromkeys(_whole(client, *one) for one in known))


def job_id(client: SyncPulse, typed: str) -> str:
    """Resolve an id or a prefix. Raises Misuse if it is ambiguous, Failure if there is no such job."""
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
        raise Misuse(
            f"{typed!r} is too short for a prefix: type {tuning.SHORTEST_PREFIX} characters or more."
        )
    return text


def _whole(client: SyncPulse, typed: str, text: str) -> str:
    if _ID.fullmatch(text):
        return text
    match client.find_jobs(text):
        case []:
            raise Failure(f"There is no job whose id starts with {typed!r}. See: pulse jobs list", NOT_FOUND)
        case [found]:
            return found
        case several:
            named = ", ".join(several[: tuning.CANDIDATES_NAMED])
            more = " and more" if len(several) > tuning.CANDIDATES_NAMED else ""
            raise Misuse(
                f"{typed!r} matches several ids: {named}{more}. "
                "Type more of it: an id starts with its time, so jobs of the same moment differ further back."
            )
