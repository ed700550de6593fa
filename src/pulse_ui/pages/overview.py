"""The whole at a glance: what needs somebody, the figures, the last hour, and the topics."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from starlette.responses import Response

from pulse import ServerInfo, Statistics, TopicPage, WorkerInfo
from pulse_ui import tuning
from pulse_ui.views.attention import findings
from pulse_ui.views.buckets import MINUTES_TOGETHER, NO_LATENCY, buckets_of
from pulse_ui.views.charts import charts_of, latency_words
from pulse_ui.views.drawing import HEIGHT, LINE_WIDTH, moment
from pulse_ui.views.figures import crew_of, depth_of, pace_of
from pulse_ui.views.findings import summed_up
from pulse_ui.views.glances import SPANS, Glance, glance_of
from pulse_ui.views.topic_table import topic_table
from pulse_ui.web.visits import Visit

_NO_STATISTICS = Statistics((), NO_LATENCY, NO_LATENCY)
_NO_WORKERS: list[WorkerInfo] = []
_NO_SERVERS: list[ServerInfo] = []


async def show(visit: Visit) -> Response:
    if not visit.may("ListTopics"):
        return await visit.page("overview_closed.html", title="Overview")
    query, client = visit.query, visit.client
    glance = glance_of(
        *(query.text("minutes"), query.text("topic"), query.text("sort"), "all" in query),
        *(query.text("search"), query.text("cursor")),
    )

    page, workers, servers, statistics, scheduler, dispatch = await asyncio.gather(
        visit.topics(search=glance.search),
        visit.ask("ListWorkers", client.workers, _NO_WORKERS),
        visit.ask("ListServers", client.servers, _NO_SERVERS),
        visit.ask(
            "GetStatistics",
            lambda: client.statistics(topic=glance.topic, minutes=glance.minutes),
            _NO_STATISTICS,
        ),
        visit.ask("GetSchedulerStatus", client.schedules.status, None),
        visit.ask("GetDispatchStatus", client.dispatch_status, None),
    )
    topics = page.topics
    found = findings(topics, workers, dispatch, scheduler, datetime.now(UTC))
    buckets = buckets_of(statistics.minutes, MINUTES_TOGETHER[glance.minutes])
    # As the charts: two numbers for one thing on one page would be one too many.
    shown = [minute for minute in statistics.minutes if minute.at and minute.at >= buckets[0].at]
    by_name = await _by_name(visit, glance, page)
    chosen = (page.sum,) if glance.topic is None else (await visit.topics(names=[glance.topic])).topics
    return await visit.page(
        "overview.html",
        title="Overview",
        live="jobs",
        glance=glance,
        spans=SPANS,
        findings=summed_up(found),
        findings_shown=tuning.FINDINGS_SHOWN,
        depth=depth_of(chosen),
        pace=pace_of(shown),
        wait=statistics.wait,
        run=statistics.run,
        crew=crew_of(workers, glance.topic),
        servers=servers,
        scheduler=scheduler,
        is_empty=not page.total and not glance.search,
        has_happened=any(bucket.attempts or bucket.submitted for bucket in buckets),
        buckets=buckets,
        charts=charts_of(buckets, glance.minutes, statistics.wait, statistics.run, visit.zone),
        chart_height=HEIGHT,
        line_width=LINE_WIDTH,
        moment=lambda bucket: moment(bucket, visit.zone),
        latency_words=latency_words,
        table=topic_table(by_name.topics, found, "topic")
        if by_name
        else topic_table(topics, found, glance.sort, None if glance.shows_all else tuning.TOPICS_SHOWN),
        topic_count=page.total,
        busiest_of=len(topics) if page.total > len(topics) else None,
        next_topics=glance.page_path(by_name.next_cursor) if by_name and by_name.next_cursor else None,
        server=client.address,
    )


async def _by_name(visit: Visit, glance: Glance, busiest: TopicPage) -> TopicPage | None:
    """Return a page of the topics by name, where all were asked for and are too many for one."""
    if not glance.shows_all or busiest.total <= len(busiest):
        return None
    return await visit.topics(
        search=glance.search, busiest=False, limit=tuning.TOPICS_PAGE, cursor=glance.cursor
    )
