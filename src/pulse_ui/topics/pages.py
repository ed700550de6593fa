"""The pages of topics: all of them, limits, settings and pauses; and one topic with all about it.

The form of settings that is invalid is shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from starlette.responses import Response

import pulse
from pulse.topic_settings import DEFAULT, ENTRIES, Count, Entry, group_of
from pulse_text import consequences, printable
from pulse_text.consequences import pause_text
from pulse_text.times import format_exact, parse_duration
from pulse_ui import tuning, words
from pulse_ui.audit import changes_of
from pulse_ui.overview.charts import age_words, depth_charts_of
from pulse_ui.overview.pages import NO_STATISTICS, NO_WORKERS, charts_context, topics_context
from pulse_ui.overview.views import (
    dead_letters_view,
    depth_of,
    read_overview_query,
    topic_path,
    worker_totals,
)
from pulse_ui.schedules.views import schedule_words
from pulse_ui.topics.views import (
    SHARE,
    WAIT,
    dispatch_view,
    lane_rows,
    limits_view,
    no_limits,
    server_view,
    settings_view,
    topic_state,
)
from pulse_ui.web.forms import Form, required_topic
from pulse_ui.web.visits import Visit, asks
from pulse_ui.workers import workers_view


async def show_all(visit: Visit) -> Response:
    if topic := visit.query.text("open"):
        section = visit.query.text("section")
        return visit.go(topic_path(topic, section if section == "settings" else ""))
    match visit.query.text("view"):
        case "limits":
            return await _show_limits(visit)
        case "settings":
            return await _show_settings(visit)
    choice = read_overview_query(visit.query.text, "/topics")
    page = await visit.topics(search=choice.search)
    return await visit.page(
        "topics.html", title="Topics", live="jobs", choice=choice, **await topics_context(visit, choice, page)
    )


async def _show_limits(visit: Visit) -> Response:
    """Show the topics with limits, and how much of them is in use."""
    visit.require("ListLimits")
    found = await visit.client.limits()
    shown = found[: tuning.SETTINGS_SHOWN]
    settings = await visit.settings_of([known.topic for known in shown])
    return await visit.page(
        "topics_limits.html",
        title="Limits",
        live="jobs",
        rows=[
            (limits_view(known), settings_view(settings.of(known.topic), settings.server)) for known in shown
        ],
        left_out=len(found) - len(shown),
    )


async def _show_settings(visit: Visit) -> Response:
    """Show the settings of the server, and the topics that differ."""
    visit.require("ListTopicSettings")
    found = await visit.client.all_topic_settings()
    shown = found.settings[: tuning.SETTINGS_SHOWN]
    return await visit.page(
        "topics_settings.html",
        title="Settings of topics",
        server=server_view(found.server),
        rows=[settings_view(settings, found.server) for settings in shown],
        left_out=len(found) - len(shown),
    )


async def show(visit: Visit) -> Response:
    return await _show(visit, visit.part("topic"), live="jobs", typed={}, problems={}, reason="")


async def show_again(
    visit: Visit, topic: str, typed: Mapping[str, str], problems: Mapping[str, str], reason: str
) -> Response:
    """Show the page with the form as it was typed, and its problems by field; "": of the form."""
    # Not live: a refresh would replace what was typed.
    form = {"live": None, "typed": typed, "problems": problems, "reason": reason}
    return await _show(visit, topic, status=400, **form)


async def _show(visit: Visit, topic: str, *, status: int = 200, **form: Any) -> Response:
    choice = read_overview_query(visit.query.text, topic_path(topic))
    client = visit.client
    found, statistics, workers, dispatch, (why, can_be_explained), details = await asyncio.gather(
        client.list_topics(names=[topic]),
        visit.ask(
            "GetStatistics", lambda: client.statistics(topic=topic, minutes=choice.minutes), NO_STATISTICS
        ),
        visit.ask("ListWorkers", client.workers, NO_WORKERS),
        visit.ask("GetDispatchStatus", client.dispatch_status, None),
        visit.explain(lambda: client.explain_topic(topic), None),
        _details(visit, topic),
    )
    (info,) = found.topics
    charts = charts_context(visit, choice, statistics)
    charts["charts"] = (
        *depth_charts_of(charts["buckets"], choice.minutes, visit.zone),
        *charts["charts"],
    )
    return await visit.page(
        "topic.html",
        title=topic,
        status=status,
        topic=topic,
        state=topic_state(info, dispatch, topic, details["view"].state),
        pause=dispatch.topics.get(topic) if dispatch else None,
        depth=depth_of(found.topics),
        why=why if why is not None and why.cause else None,
        can_be_explained=can_be_explained,
        workers=worker_totals(workers, topic),
        serving=workers_view(workers, topic),
        scheduler=None,
        with_depth=True,
        age_words=age_words,
        **charts,
        **details,
        **form,
    )


async def _details(visit: Visit, topic: str) -> dict[str, Any]:
    parts = await asyncio.gather(_settings(visit, topic), _activity(visit, topic))
    return {name: value for part in parts for name, value in part.items()}


async def _settings(visit: Visit, topic: str) -> dict[str, Any]:
    """Return the settings of the topic, what is in use of its limits, and its lanes."""
    by: Literal["wait", "share"] = "share" if visit.query.text("lanes") == SHARE else "wait"
    limits, found = await asyncio.gather(visit.limits_of([topic]), visit.settings_of([topic]))
    known = limits.get(topic)
    view = no_limits(topic) if known is None else limits_view(known)
    lanes = []
    if known is not None and view.has_lanes and visit.may("ListLanes"):
        lanes = lane_rows(await visit.client.lanes(topic, by=by, limit=tuning.LANES_SHOWN), known.in_force)
    path = topic_path(topic)
    return {
        "view": view,
        "settings": settings_view(found.of(topic), found.server) if visit.may("ListTopicSettings") else None,
        "lanes": lanes,
        "lanes_shown": tuning.LANES_SHOWN,
        "by": by,
        "orders": [
            (WAIT, "Longest wait", f"{path}#lanes"),
            (SHARE, "Share", f"{path}?lanes={SHARE}#lanes"),
        ],
    }


async def _activity(visit: Visit, topic: str) -> dict[str, Any]:
    """Return the schedules and the dead letters of the topic."""
    client = visit.client
    schedules, letters, changes = await asyncio.gather(
        visit.ask("ListSchedules", lambda: client.schedules.list(topic=topic, limit=tuning.TOPIC_ROWS), None),
        visit.ask(
            "ListDeadLetterGroups", lambda: client.dead_letters(topic=topic, limit=tuning.TOPIC_ROWS), None
        ),
        changes_of(visit, topic=topic),
    )
    return {
        "schedules": [(schedule, schedule_words(schedule)) for schedule in schedules or ()],
        "more_schedules": schedules is not None and schedules.next_cursor is not None,
        "letters": None if letters is None else dead_letters_view(letters, (), topic),
        "topic_rows": tuning.TOPIC_ROWS,
        "changes": changes,
    }


# ---------------------------------------------------------------- changes

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


# ---------------------------------------------------------------- pauses


async def show_pauses(visit: Visit) -> Response:
    status, topics = await asyncio.gather(
        visit.client.dispatch_status(), visit.topics(limit=tuning.DISPATCH_TOPICS_SHOWN)
    )
    return await visit.page(
        "dispatch.html",
        title="Dispatch",
        live="jobs",
        state=status,
        view=dispatch_view(status, topics.topics, topics.sum),
        question=pause_text(topics.sum),
    )


async def pause(visit: Visit, form: Form) -> Response:
    topic = _topic(form)
    await visit.client.pause(reason=form.reason, topic=topic)
    what = f"the topic {topic}" if topic else "everything"
    return visit.back(form, f"Paused {what}. Running jobs finish; ready jobs wait.", otherwise="/dispatch")


async def resume(visit: Visit, form: Form) -> Response:
    topic = _topic(form)
    await visit.client.resume(topic, reason=form.reason)
    sentence = f"Resumed {f'the topic {topic}' if topic else 'everything'}."
    status = await visit.client.dispatch_status()
    if status.paused:
        sentence += " But everything is still paused, so its jobs wait."
    elif status.topics:
        sentence += f" Still paused by name: {', '.join(sorted(status.topics))}."
    return visit.back(form, sentence, otherwise="/dispatch")


def _topic(form: Form) -> str | None:
    """Return the topic of a form, or None for everything.

    Everything must be explicit: a form with an empty topic must not pause the whole queue.
    """
    if form.text("scope") == "everything":
        return None
    return required_topic(form)
