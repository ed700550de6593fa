"""Asks before a change that deletes or stops jobs, with a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse_cli.inputs.questions import confirm

if TYPE_CHECKING:
    from pulse import SyncPulse
    from pulse_text.consequences import Question


def confirm_harm(client: SyncPulse, question: Question, *, yes: bool) -> None:
    """Return if the change does no harm, or if the answer is yes."""
    if yes:
        return
    text = _text(client, question)
    if text is not None:
        confirm(text if text.endswith("?") else f"{text} Continue?", yes=yes)


def _text(client: SyncPulse, question: Question) -> str | None:
    from pulse import PermissionDenied

    answer: Any = None
    try:
        while True:
            method, options = question.send(answer)
            answer = getattr(client, method)(**options)
    except StopIteration as end:
        text: str | None = end.value
        return text
    except PermissionDenied:  # of the count: a worker may hold its topics, and may not list them
        return None
