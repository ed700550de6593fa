"""The pages of topics: the list, and one topic with its charts, limits, policies, workers and changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Literal

from starlette.responses import Response

from pulse_ui import tuning
from pulse_ui.pages.audit import changes_of
from pulse_ui.pages.overview import NO_STATISTICS, NO_WORKERS, charts_context, topics_context
from pulse_ui.views.dispatch import topic_state
from pulse_ui.views.overview.dead_letters import dead_letters_view
from pulse_ui.views.overview.depth_charts import age_words, depth_charts_of
from pulse_ui.views.overview.figures import depth_of, worker_totals
from pulse_ui.views.overview.query import read_overview_query, topic_path
from pulse_ui.views.overview.workers import workers_view
from pulse_ui.views.policies import ENTRIES as RUN_ENTRIES
from pulse_ui.views.policies import policy_row, run_policy_row
from pulse_ui.views.schedules.cron import schedule_words
from pulse_ui.views.topic_limits import ENTRIES, SHARE, WAIT, lane_rows, limits_view, no_limits
from pulse_ui.web.visits import Visit

_SECTIONS = ("limits", "policy", "retention")


async def show_all(visit: Visit) -> Response:
    if topic := visit.query.text("open"):
        section = visit.query.text("section")
        return visit.go(topic_path(topic, section if section in _SECTIONS else ""))
    choice = read_overview_query(visit.query.text, "/topics")
    page = await visit.topics(search=choice.search)
    return await visit.page(
        "topics.html", title="Topics", live="jobs", choice=choice, **await topics_context(visit, choice, page)
    )


async def show(visit: Visit) -> Response:
    topic = visit.part("topic")
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
        live="jobs",
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
    )


async def _details(visit: Visit, topic: str) -> dict[str, Any]:
    parts = await asyncio.gather(_limits(visit, topic), _policies(visit, topic), _activity(visit, topic))
    return {name: value for part in parts for name, value in part.items()}


async def _limits(visit: Visit, topic: str) -> dict[str, Any]:
    """Return what limits the topic, and its lanes."""
    by: Literal["wait", "share"] = "share" if visit.query.text("lanes") == SHARE else "wait"
    known = (await visit.limits_of([topic])).get(topic)
    view = no_limits(topic) if known is None else limits_view(known)
    lanes = []
    if known is not None and view.has_lanes and visit.may("ListLanes"):
        found = await visit.client.lanes(topic, by=by, limit=tuning.LANES_SHOWN)
        lanes = lane_rows(found, known.policy)
    path = topic_path(topic)
    return {
        "view": view,
        "entries": ENTRIES,
        "lanes": lanes,
        "lanes_shown": tuning.LANES_SHOWN,
        "by": by,
        "orders": [
            (WAIT, "Longest wait", f"{path}#lanes"),
            (SHARE, "Share", f"{path}?lanes={SHARE}#lanes"),
        ],
    }


async def _policies(visit: Visit, topic: str) -> dict[str, Any]:
    """Return how the jobs of the topic run, and how long they are kept."""
    if not visit.may("ListTopicPolicies"):
        return {"policy": None}
    found = await visit.client.topic_policies(names=[topic])
    policy = next(iter(found), replace(found.server, topic=topic))
    return {
        "policy": run_policy_row(policy, found.server),
        "policy_entries": RUN_ENTRIES,
        "kept": policy_row(policy, found.server),
        "server": policy_row(found.server, found.server),
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
