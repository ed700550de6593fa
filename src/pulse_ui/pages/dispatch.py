"""The pause switch: what is held back, since when and why; pausing and resuming."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

import pulse
from pulse_ui import tuning
from pulse_ui.views.dispatch import dispatch_view
from pulse_ui.web.forms import Form
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
    status, topics = await asyncio.gather(
        visit.client.dispatch_status(), visit.topics(limit=tuning.DISPATCH_TOPICS_SHOWN)
    )
    return await visit.page(
        "dispatch.html",
        title="Dispatch",
        live="jobs",
        state=status,
        board=dispatch_view(status, topics.topics, topics.sum),
    )


async def pause(visit: Visit, form: Form) -> Response:
    topic = _topic(form)
    await visit.client.pause(reason=form.text("reason"), topic=topic)
    what = f"the topic {topic}" if topic else "everything"
    return visit.back(form, f"Paused {what}. Jobs that run finish; new ones wait.", otherwise="/dispatch")


async def resume(visit: Visit, form: Form) -> Response:
    topic = _topic(form)
    await visit.client.resume(topic)
    sentence = f"Resumed {f'the topic {topic}' if topic else 'everything'}."
    status = await visit.client.dispatch_status()
    if status.paused:
        sentence += " But everything is paused, so its jobs still wait."
    elif status.topics:
        sentence += f" Still paused by name: {', '.join(sorted(status.topics))}."
    return visit.back(form, sentence, otherwise="/dispatch")


def _topic(form: Form) -> str | None:
    """Return the topic that a form names, or None if it means everything.

    Everything has to be said: a form that names no topic because its field was left empty must not stop it.
    """
    if form.text("scope") == "everything":
        return None
    if not (topic := form.text("topic")):
        raise pulse.InvalidArgument("Name the topic that is meant.")
    return topic
