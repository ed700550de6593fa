"""The changes of the settings of a topic, of its lanes, and its holds. An invalid form is shown again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.responses import Response

import pulse
from pulse.topic_settings import DEFAULT, ENTRIES, Count, Entry, group_of
from pulse_text import consequences, printable
from pulse_text.times import format_exact, parse_duration
from pulse_ui import tuning, words
from pulse_ui.pages.topics import show_again
from pulse_ui.views.overview.query import topic_path
from pulse_ui.web.forms import Form, required_topic
from pulse_ui.web.visits import Visit, asks

_SHOWN = 40  # characters of a wrong value


async def update(visit: Visit, form: Form) -> Response:
    topic = visit.part("topic")
    if "reset" in form:
        return await _reset(visit, form, topic)
    if not (typed := _typed(form)):
        return visit.back(form, "Nothing was changed.", otherwise=_path(topic))
    changes, problems = _read(typed)
    if problems:
        return await show_again(visit, topic, typed, problems, form.reason)
    try:
        if question := await _asks_about(visit, form, topic, changes, verb="Save the settings"):
            return question
        settings = await visit.client.set_topic(topic, reason=form.reason, **changes)
    except pulse.InvalidArgument as error:
        return await show_again(visit, topic, typed, {"": str(error)}, form.reason)
    return visit.go(_path(topic), _done(settings, changes))


async def _reset(visit: Visit, form: Form, topic: str) -> Response:
    changes = dict.fromkeys(ENTRIES, DEFAULT)
    if question := await _asks_about(visit, form, topic, changes, verb="Reset the settings"):
        return question
    settings = await visit.client.reset_topic(topic, reason=form.reason)
    return visit.go(_path(topic), _done(settings, changes))


async def hold(visit: Visit, form: Form) -> Response:
    topic = required_topic(form)
    span = _hold_span(form.text("for"))
    if question := await asks(visit, form, consequences.hold(topic, span), verb=f"Hold {topic}"):
        return question
    await visit.client.hold(topic, span, reason=form.reason)
    if not span:
        return visit.back(form, f"The hold of {topic} has ended.", otherwise=_path(topic))
    sentence = f"{topic} is held for {words.span(span.total_seconds())}. Running jobs go on; no other starts."
    return visit.back(form, sentence, otherwise=_path(topic))


async def set_lane(visit: Visit, form: Form) -> Response:
    topic = required_topic(form)
    if not (lane := form.raw("lane")).strip():
        raise pulse.InvalidArgument("Enter a lane.")
    weight, limit = _number(form, "weight", _WEIGHT), _number(form, "limit", _LANE_LIMIT)
    lower = consequences.lower_lane_limit(topic, lane, limit)
    if question := await asks(visit, form, lower, verb="Set the limit"):
        return question
    await visit.client.set_lane(topic, lane, weight=weight, limit=limit, reason=form.reason)
    return visit.back(form, f"Saved the lane {lane}.", otherwise=_path(topic))


def _path(topic: str) -> str:
    return topic_path(topic, "settings")


async def _asks_about(
    visit: Visit, form: Form, topic: str, changes: dict[str, Any], *, verb: str
) -> Response | None:
    return await asks(
        visit,
        form,
        consequences.tighter_limits(topic, changes),
        consequences.shorter_retention(topic, changes),
        verb=verb,
    )


def _done(settings: pulse.TopicSettings, changes: dict[str, Any]) -> str:
    """Return what a change came to."""
    topic = settings.topic
    if settings.pending and any(entry.name in changes for entry in group_of("limits")):
        return f"The settings of {topic} are accepted, {printable.one_line(settings.pending)}."
    if settings.operator:
        return f"Saved the settings of {topic}."
    if settings.declared:
        return f"Reset the settings of {topic}: what its workers declare decides again."
    return f"Reset the settings of {topic}: the server’s settings decide again."


# ---------------------------------------------------------------- fields of forms

_WEIGHT = Entry(Count(tuning.MOST_WEIGHT), "Weight", "", "", "limits", name="weight")
_LANE_LIMIT = Entry(ENTRIES["per_lane"].kind, "Limit", "", "", "limits", name="limit")


def _typed(form: Form) -> dict[str, str]:
    """Return the texts of the entries that the visitor has changed.

    A form has each entry as it was, in `was-…`. An entry that only another operator has changed since is
    left alone.
    """
    return {
        name: form.text(name)
        for name in ENTRIES
        if name in form and not (f"was-{name}" in form and form.text(f"was-{name}") == form.text(name))
    }


def _read(typed: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the entries to change, "default" where the field was emptied; and the problems by field."""
    changes: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, text in typed.items():
        try:
            changes[name] = _value(ENTRIES[name], text)
        except pulse.InvalidArgument as error:
            problems[name] = str(error)
    return changes, problems


def _value(entry: Entry, text: str) -> Any:
    """Return the value of a field. The problem is stated with the title of the field."""
    try:
        return entry.parse(text)
    except ValueError as problem:
        sentence = str(problem)
        rest = sentence.removeprefix(f"{entry.name} ")
        title = f"{entry.title}:" if rest == sentence else entry.title
        raise pulse.InvalidArgument(f"{title} {rest}") from None


def _number(form: Form, field: str, entry: Entry) -> int | None:
    """Return the number of a field of a lane. None: as for the other lanes."""
    value = _value(entry, form.text(field))
    return None if value == DEFAULT else value


def _hold_span(text: str) -> timedelta:
    """Return for how long to hold a topic."""
    if not text:
        raise pulse.InvalidArgument("Hold: enter for how long, such as 2m.")
    try:
        span = parse_duration(text)
    except ValueError as problem:
        raise pulse.InvalidArgument(f"Hold: {problem}") from None
    if span > tuning.LONGEST_HOLD:
        most = format_exact(tuning.LONGEST_HOLD)
        raise pulse.InvalidArgument(f"Hold: {text[:_SHOWN]} is longer than {most}. Pause the topic instead.")
    return span
