"""The page of workers: all of them with their jobs; quiet, resume and stop them."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

import pulse
from pulse_ui.pages.overview import NO_SERVERS
from pulse_ui.views.overview.workers import topics_of, workers_view
from pulse_ui.web.forms import Form
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
    workers, servers = await asyncio.gather(
        visit.client.workers(), visit.ask("ListServers", visit.client.servers, NO_SERVERS)
    )
    topic = visit.query.text("topic")
    topics = topics_of(workers)
    return await visit.page(
        "workers.html",
        title="Workers",
        live="jobs",
        servers=servers,
        has_workers=bool(workers),
        view=workers_view(workers, topic),
        topic=topic,
        # A topic named in the URL is selected even if no worker serves it.
        topics=topics if topic in topics or not topic else sorted([*topics, topic]),
    )


async def set_state(visit: Visit, form: Form) -> Response:
    worker, reason = form.text("worker"), form.reason
    match form.text("state"):
        case "quiet":
            await visit.client.quiet_worker(worker, reason=reason)
            sentence = f"{worker} takes no further jobs. It finishes those that it has started."
        case "running":
            await visit.client.resume_worker(worker, reason=reason)
            sentence = f"{worker} takes jobs again."
        case "stopping":
            note = await visit.client.stop_worker(worker, reason=reason)
            sentence = note or f"{worker} drains and ends. A supervisor may start it again."
        case _:
            raise pulse.InvalidArgument("Choose what the worker is to do.")
    return visit.back(form, sentence, otherwise="/workers")
