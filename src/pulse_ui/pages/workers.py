"""Who works: the servers, the workers that are connected to them, and what each of those holds."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

import pulse
from pulse_ui.views.workforce import topics_of, workforce
from pulse_ui.web.visits import Visit

_NO_SERVERS: list[pulse.ServerInfo] = []


async def show(visit: Visit) -> Response:
    workers, servers = await asyncio.gather(
        visit.client.workers(), visit.ask("ListServers", visit.client.servers, _NO_SERVERS)
    )
    topic = visit.query.text("topic")
    topics = topics_of(workers)
    return await visit.page(
        "workers.html",
        title="Workers",
        live="jobs",
        servers=servers,
        has_workers=bool(workers),
        force=workforce(workers, topic),
        topic=topic,
        # A topic that a link names is chosen even while nobody asks for it.
        topics=topics if topic in topics or not topic else sorted([*topics, topic]),
    )
