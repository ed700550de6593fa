"""Asks before a form deletes or stops jobs, with a count. The answer is the same form once more."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

import pulse
from pulse_text.consequences import Question
from pulse_ui.web.forms import Form, local_path
from pulse_ui.web.visits import Visit

_ANSWER = "confirmed"


async def asks(visit: Visit, form: Form, *questions: Question, verb: str) -> Response | None:
    """Return the page with the questions, or None to go on: nothing is at risk, or the answer was yes."""
    if form.text(_ANSWER) == "yes":
        return None
    texts = [text for question in questions if (text := await _text(visit, question)) is not None]
    if not texts:
        return None
    page = await visit.page(
        "question.html",
        title="Are you sure?",
        text=" ".join(texts),
        verb=verb,
        back=local_path(form.raw("back")),
        fields=[*(field for field in form.items() if field[0] not in ("csrf", "back")), (_ANSWER, "yes")],
    )
    page.headers["HX-Push-Url"] = "false"  # of a form: it cannot be loaded again
    return page


async def _text(visit: Visit, question: Question) -> str | None:
    answer: Any = None
    try:
        while True:
            method, options = question.send(answer)
            answer = await getattr(visit.client, method)(**options)
    except StopIteration as end:
        text: str | None = end.value
        return text
    except pulse.PermissionDenied:  # of the count
        return None
