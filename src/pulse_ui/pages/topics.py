"""The pages of topics: the lists of all, of limits and of settings; and one topic with all about it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from starlette.responses import Response

from pulse_ui import tuning
from pulse_ui.audit import changes_of
from pulse_ui.pages.overview import NO_STATISTICS, NO_WORKERS, charts_context, topics_context
from pulse_ui.views.dispatch import topic_state
from pulse_ui.views.overview.dead_letters import dead_letters_view
from pulse_ui.views.overview.depth_charts import age_words, depth_charts_of
from pulse_ui.views.overview.figures import depth_of, worker_totals
from pulse_ui.views.overview.query import read_overview_query, topic_path
from pulse_ui.views.overview.workers import workers_view
from pulse_ui.views.schedules.cron import schedule_words
from pulse_ui.views.topic_limits import SHARE, WAIT, lane_rows, limits_view, no_limits
from pulse_ui.views.topic_settings import server_view, settings_view
from pulse_ui.web.visits import Visit


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
