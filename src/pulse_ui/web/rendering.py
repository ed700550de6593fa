"""Renders templates. Every value is escaped unless a view made it as markup."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pulse_text import printable
from pulse_text.jobs import STATUS_MARKS, STATUS_NAMES
from pulse_ui import tuning, words
from pulse_ui.settings import Settings
from pulse_ui.words import progress_words, zone_named

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
        loader=PackageLoader("pulse_ui"),
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
    content = (files("pulse_ui") / "static" / name).read_bytes()
    return f"/static/{name}?{hashlib.sha256(content).hexdigest()[:12]}"


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
