"""Renders templates, and errors as pages. Every value is escaped unless a view made it as markup."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import pulse
from pulse_text import printable
from pulse_text.jobs import STATUS_MARKS, STATUS_NAMES
from pulse_ui import tuning, words
from pulse_ui.settings import Settings
from pulse_ui.words import progress_words, zone_named

# The nouns whose templates and styles stand beside their pages. templates/ and static/ have the others.
_NOUNS = ("jobs", "overview", "schedules", "topics", "workflows")
THEMES = ("auto", "light", "dark")


class Rendering:
    def __init__(self, settings: Settings) -> None:
        self._environment = _environment(read_only=settings.read_only, refresh_seconds=tuning.REFRESH_SECONDS)

    def page(
        self, template: str, context: Mapping[str, Any], *, request: Request, status: int = 200
    ) -> HTMLResponse:
        """Return the rendered template, in the visitor's zone and theme."""
        theme = request.cookies.get("pulse_theme", "")
        text = self._environment.get_template(template).render(
            {
                **context,
                "request": request,
                "theme": theme if theme in THEMES else "auto",
                "zone": zone_named(request.cookies.get("pulse_zone", "")),
                "now": datetime.now(UTC),
            }
        )
        return HTMLResponse(text, status_code=status)


@cache
def _environment(**facts: object) -> Environment:
    """Return the environment with these globals. Cached: each one compiles its own templates."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("pulse_ui", folder) for folder in ("templates", *_NOUNS)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=words.count,
        short_count=words.short_count,
        span=words.span,
        mebibytes=words.mebibytes,
        plural=words.plural,
        percent=words.percent,
        progress_words=progress_words,
        ago=_ago,
        stamp=_stamp,
        clock=_clock,
        brief=_brief,
        status_name=STATUS_NAMES.__getitem__,
        status_mark=STATUS_MARKS.__getitem__,
    )
    # Only some pages set `live`.
    environment.globals.update(asset=asset_path, bounds=tuning, live=None, verbatim=_Verbatim, **facts)
    return environment


class _Verbatim(str):
    """A value of a form: it is returned unchanged."""

    __slots__ = ()


def _shown(value: object) -> object:
    """Return the value for a template. Text has its control characters escaped, as in the CLI."""
    if isinstance(value, str) and not isinstance(value, _Verbatim | Markup):
        return printable.lines(value)
    return value


@lru_cache(maxsize=64)
def asset_path(name: str) -> str:
    """Return the URL of a static file, which changes with its content."""
    return f"/static/{name}?{hashlib.sha256(static_files()[name]).hexdigest()[:12]}"


@cache
def static_files() -> Mapping[str, bytes]:
    """Return the styles, scripts and icons of all folders, by name."""
    found = (file for folder in ("static", *_NOUNS) for file in (files("pulse_ui") / folder).iterdir())
    return {file.name: file.read_bytes() for file in found if file.name.endswith((".css", ".js", ".svg"))}


@pass_context
def _ago(context: Context, moment: datetime | None) -> Markup | str:
    """Relative time, updated by the browser, with the exact time on hover."""
    return _time(context, moment, "ago", words.ago)


@pass_context
def _stamp(context: Context, moment: datetime | None) -> Markup | str:
    """Date and time in the visitor's zone."""
    return _time(context, moment, "stamp", lambda when: words.stamp(when, context["zone"]))


@pass_context
def _brief(context: Context, moment: datetime | None) -> Markup | str:
    """Date and time in the visitor's zone, without seconds if there are none."""
    return _time(context, moment, "brief", lambda when: words.brief(when, context["zone"]))


@pass_context
def _clock(context: Context, moment: datetime | None) -> Markup | str:
    """The time of day in the visitor's zone."""
    return _time(context, moment, "clock", lambda when: words.clock(when, context["zone"]))


def _time(context: Context, moment: datetime | None, kind: str, text: Any) -> Markup | str:
    if moment is None:
        return words.NOTHING
    zone = context["zone"]
    exact = f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S} {moment.astimezone(zone).tzname()}"
    return Markup('<time datetime="{}" data-time="{}" title="{}">{}</time>').format(
        moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        kind,
        exact,
        text(moment),
    )


# ---------------------------------------------------------------- errors


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
