"""The page of all topics with limits, and the changes of limits and lanes."""

from __future__ import annotations

from starlette.responses import Response

import pulse
from pulse_text import consequences, printable
from pulse_ui import tuning
from pulse_ui.views import words
from pulse_ui.views.limit_forms import read_hold, read_lane_limit, read_limits, read_weight
from pulse_ui.views.overview.query import topic_path
from pulse_ui.views.topic_limits import limits_view
from pulse_ui.web.forms import Form, required_topic
from pulse_ui.web.questions import asks
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
    if topic := visit.query.text("topic"):
        return visit.go(topic_path(topic, "limits"))
    found = await visit.client.limits()
    return await visit.page(
        "limits.html",
        title="Limits",
        live="jobs",
        rows=[limits_view(known) for known in found[: tuning.POLICIES_SHOWN]],
        left_out=max(len(found) - tuning.POLICIES_SHOWN, 0),
    )


async def update(visit: Visit, form: Form) -> Response:
    topic = required_topic(form)
    entries = read_limits(form.text)
    if question := await asks(
        visit, form, consequences.tighter_limits(topic, entries), verb="Set the limits"
    ):
        return question
    policy = await visit.client.set_limits(topic, reason=form.reason, **entries)
    if policy.limits:
        sentence = f"Saved the limits of {topic}."
    elif policy.effective_limits:
        sentence = f"Handed back: what its workers declare decides for {topic} again."
    else:
        sentence = f"Handed back: nothing limits {topic} any more."
    if policy.limits_pending:
        sentence = f"The limits of {topic} are accepted, {printable.one_line(policy.limits_pending)}."
    return visit.go(_path(topic), sentence)


async def hold(visit: Visit, form: Form) -> Response:
    topic = required_topic(form)
    span = read_hold(form.text("for"))
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
    weight, limit = read_weight(form.text("weight")), read_lane_limit(form.text("limit"))
    lower = consequences.lower_lane_limit(topic, lane, None if limit is None else limit.limit)
    if question := await asks(visit, form, lower, verb="Set the limit"):
        return question
    await visit.client.set_lane(topic, lane, weight=weight, limit=limit, reason=form.reason)
    return visit.back(form, f"Saved the lane {lane}.", otherwise=_path(topic))


def _path(topic: str) -> str:
    return topic_path(topic, "limits")
