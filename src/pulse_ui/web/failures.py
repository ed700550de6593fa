"""Errors as pages: one sentence, and what to do next."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import Response

import pulse
from pulse_ui.web.rendering import Rendering


class Refused(Exception):
    """The request is refused: an HTTP status, and a sentence with the reason and the next step."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class LoginNeeded(Exception):
    """There is no login, or the session has ended."""


log = logging.getLogger(__name__)

_STATUS_OF: dict[type[pulse.PulseError], int] = {
    pulse.NotFound: 404,
    pulse.InvalidArgument: 400,
    pulse.PermissionDenied: 403,
    pulse.ResourceExhausted: 429,
    pulse.Unavailable: 503,
    pulse.DeadlineExceeded: 503,
    pulse.ClientClosed: 503,  # the dashboard is stopping
    pulse.InvalidTransition: 409,
    pulse.AlreadyExists: 409,
}
_HEADING = {
    400: "Bad request",
    403: "Not permitted",
    404: "Not found",
    408: "Too slow",
    409: "No longer possible",
    413: "Too large",
    415: "Not a form",
    421: "Unknown host",
    429: "Too many requests",
    503: "pulsed is unavailable",
}


def answer(rendering: Rendering, request: Request, error: Exception, *, back: str | None = None) -> Response:
    """Return the page for an error. After a change `back` is the page of its form."""
    if isinstance(error, Refused):
        status, sentence = error.status, error.sentence
    elif isinstance(error, pulse.PulseError):
        status, sentence = _STATUS_OF.get(type(error), 502), str(error)
    else:
        log.error("a page failed: %s", request.url.path, exc_info=error)
        status, sentence = 500, "Internal error of the dashboard. See its log; try again, or report it."
    heading = _HEADING.get(status, "Something went wrong")
    if status == 503 and sentence.startswith("The database"):
        heading = "The database is unavailable"  # pulsed answers
    if back and status == 503:
        sentence += " The change may or may not have happened. Check before you repeat it."
    return rendering.page(
        "failure.html",
        {"title": heading, "heading": heading, "sentence": sentence, "status": status, "back": back},
        request=request,
        status=status,
    )
