"""The dispatch page: all pauses with time and reason; pause and resume."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from pulse_text.consequences import pause_text
from pulse_ui import tuning
from pulse_ui.views.dispatch import dispatch_view
from pulse_ui.web.forms import Form, required_topic
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
