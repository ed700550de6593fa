"""Checks names that an application gives: of steps and signals, the keys of unique jobs, and ids of jobs."""

from __future__ import annotations

import reprlib
from uuid import UUID

from pulse.errors import InvalidArgument, NotFound


def check_unicode(what: str, name: str) -> None:
    """Raise InvalidArgument for a text with a lone surrogate: no server could receive it."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{what} {name!r} cannot be stored: its character {error.start} is a lone surrogate. Decode the "
            "text as UTF-8, or replace the character."
        ) from None


def existing_id(job_id: str) -> str:
    """Return the id of a job that should be there. Raises NotFound for a text that can be no job's id."""
    if isinstance(job_id, str) and job_id:  # else it is a mistake, which the request refuses
        try:
            UUID(job_id)
        except ValueError:
            raise NotFound(f"There is no job {reprlib.repr(job_id)}: ids of jobs are UUIDs.") from None
    return job_id
