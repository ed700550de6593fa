"""The limits pages: all topics that have some; and one topic with its lanes, and the forms to change both."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

from starlette.responses import Response

import pulse
from pulse_ui import tuning
from pulse_ui.views import words
from pulse_ui.views.limit_forms import read_hold, read_lane_limit, read_limits, read_weight
from pulse_ui.views.topic_limits import ENTRIES, SHARE, WAIT, lane_rows, limits_view, limits_views, no_limits
from pulse_ui.web.forms import Form
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
    if topic := visit.query.text("topic"):
        return await _show_topic(visit, topic)
    found = await visit.client.limits()
    return await visit.page(
        "limits.html",
        title="Limits",
        live="jobs",
        rows=limits_views(found[: tuning.POLICIES_SHOWN]),
        left_out=max(len(found) - tuning.POLICIES_SHOWN, 0),
        changed=no_limits(""),
        entries=ENTRIES,
    )


async def _show_topic(visit: Visit, topic: str) -> Response:
    by: Literal["wait", "share"] = "share" if visit.query.text("lanes") == SHARE else "wait"
    (known, *_) = [*await visit.client.limits(names=[topic]), None]
    view = limits_view(known) if known is not None else no_limits(topic)
    lanes = []
    if known is not None and view.has_lanes and visit.may("ListLanes"):
        found = await visit.client.lanes(topic, by=by, limit=tuning.LANES_SHOWN)
        lanes = lane_rows(found, known.policy)
    return await visit.page(
        "topic_limits.html",
        title=f"Limits of {view.topic}",
        live="jobs",
        view=view,
        changed=view,
        entries=ENTRIES,
        lanes=lanes,
        lanes_shown=tuning.LANES_SHOWN,
        by=by,
        orders=[(WAIT, "Longest wait", _path(topic)), (SHARE, "Share", _path(topic, lanes=SHARE))],
    )


async def update(visit: Visit, form: Form) -> Response:
    topic = _topic(form)
    policy = await visit.client.set_limits(topic, **read_limits(form.text))
    if policy.flow:
        sentence = f"Saved the limits of {topic}."
    elif policy.effective_flow:
        sentence = f"Handed back: what its workers declare decides for {topic} again."
    else:
        sentence = f"Handed back: nothing limits {topic} any more."
    return visit.go(_path(topic), sentence)


async def hold(visit: Visit, form: Form) -> Response:
    topic = _topic(form)
    span = read_hold(form.text("for"))
    await visit.client.hold(topic, span)
    if not span:
        return visit.back(form, f"The hold of {topic} has ended.", otherwise=_path(topic))
    sentence = f"{topic} is held for {words.span(span.total_seconds())}. Running jobs go on; no other starts."
    return visit.back(form, sentence, otherwise=_path(topic))


async def set_lane(visit: Visit, form: Form) -> Response:
    topic = _topic(form)
    if not (lane := form.raw("lane")).strip():
        raise pulse.InvalidArgument("Enter a lane.")
    await visit.client.set_lane(
        topic, lane, weight=read_weight(form.text("weight")), limit=read_lane_limit(form.text("limit"))
    )
    return visit.back(form, f"Saved the lane {lane}.", otherwise=_path(topic))


def _topic(form: Form) -> str:
    if not (topic := form.text("topic")):
        raise pulse.InvalidArgument("Enter a topic.")
    return topic


def _path(topic: str, **more: str) -> str:
    return f"/limits?{urlencode({'topic': topic, **more})}"
