"""Ids of jobs, as they are typed."""

from __future__ import annotations

import re

from pulse_cli.failures import Misuse

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def job_id(typed: str) -> str:
    """Return the id. Raises Misuse for what is not a whole one."""
    text = typed.strip().lower()
    if _ID.fullmatch(text):
        return text
    if text and len(text) < 36 and re.fullmatch(r"[0-9a-f-]+", text):
        raise Misuse(
            f"{typed!r} is only part of a job's id: give all 36 characters, as `pulse jobs list` shows them."
        )
    raise Misuse(f"{typed!r} is not the id of a job: copy one from `pulse jobs list`.")
