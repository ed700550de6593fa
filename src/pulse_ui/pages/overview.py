"""The overview (findings, figures, charts, topics), and its live events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from pulse import ServerInfo, Statistics, TopicPage, WorkerInfo
from pulse_ui import tuning
from pulse_ui.views.overview.charts import charts_of, latency_words
from pulse_ui.views.overview.drawing import HEIGHT, LINE_WIDTH, moment
from pulse_ui.views.overview.figures import depth_of, pace_of, worker_totals
from pulse_ui.views.overview.findings import findings_view, summarized
from pulse_ui.views.overview.query import SPANS, OverviewQuery, read_overview_query, topic_path
from pulse_ui.views.overview.scales import MINUTES_TOGETHER, NO_LATENCY, buckets_of
from pulse_ui.views.overview.topics import topic_table
from pulse_ui.web.sessions import Sessions
from pulse_ui.web.visits import Visit

NO_STATISTICS = Statistics((), NO_LATENCY, NO_LATENCY)
NO_WORKERS: list[WorkerInfo] = []
NO_SERVERS: list[ServerInfo] = []


async def show(visit: Visit) -> Response:
    if not visit.may("ListTopics"):
        return await visit.page("overview_closed.html", title="Overview")
    query, client = visit.query, visit.client
    if topic := query.text("topic"):
        return visit.go(topic_path(topic))
    choice = read_overview_query(query.text)

    page, workers, servers, statistics, scheduler, needed = await asyncio.gather(
        visit.topics(search=choice.search),
        visit.ask("ListWorkers", client.workers, NO_WORKERS),
        visit.ask("ListServers", client.servers, NO_SERVERS),
        visit.ask(
            "GetStatistics",
            lambda: client.statistics(minutes=choice.minutes),
            NO_STATISTICS,
        ),
        visit.ask("GetSchedulerStatus", client.schedules.status, None),
        visit.ask("ListFindings", lambda: client.findings(limit=tuning.FINDINGS_ASKED), ()),
    )
    topics = page.topics
    found = findings_view(needed)
    buckets = buckets_of(statistics.minutes, MINUTES_TOGETHER[choice.minutes])
    # The same minutes as the charts, so that their numbers agree.
    shown = [minute for minute in statistics.minutes if minute.at and minute.at >= buckets[0].at]
    by_name = await topics_by_name(visit, choice, page)
    return await visit.page(
        "overview.html",
        title="Overview",
        live="jobs",
        topic=None,
        choice=choice,
        spans=SPANS,
        findings=summarized(found),
        findings_shown=tuning.FINDINGS_SHOWN,
        depth=depth_of((page.sum,)),
        pace=pace_of(shown),
        wait=statistics.wait,
        run=statistics.run,
        workers=worker_totals(workers),
        servers=servers,
        scheduler=scheduler,
        is_empty=not page.total and not choice.search,
        with_depth=False,
        has_happened=any(bucket.attempts or bucket.submitted for bucket in buckets),
        buckets=buckets,
        charts=charts_of(buckets, choice.minutes, statistics.wait, statistics.run, visit.zone),
        chart_height=HEIGHT,
        line_width=LINE_WIDTH,
        moment=lambda bucket: moment(bucket, visit.zone),
        latency_words=latency_words,
        table=topic_table(by_name.topics, found, "topic")
        if by_name
        else topic_table(topics, found, choice.sort, None if choice.shows_all else tuning.TOPICS_SHOWN),
        topic_count=page.total,
        busiest_of=len(topics) if page.total > len(topics) else None,
        next_topics=choice.page_path(by_name.next_cursor) if by_name and by_name.next_cursor else None,
        server=client.address,
    )


async def topics_by_name(visit: Visit, choice: OverviewQuery, busiest: TopicPage) -> TopicPage | None:
    """Return a page of all topics by name, if they were requested and do not fit on one page."""
    if not choice.shows_all or busiest.total <= len(busiest):
        return None
    return await visit.topics(
        search=choice.search, busiest=False, limit=tuning.TOPICS_PAGE, cursor=choice.cursor
    )


_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Events:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def stream(self, visit: Visit) -> Response:
        """Server-sent events: `changed` when jobs changed, `ended` when the session ended."""
        return StreamingResponse(
            self._events(visit, visit.query.text("job") or None),
            media_type="text/event-stream",
            headers=_HEADERS,
        )

    async def _events(self, visit: Visit, job_id: str | None) -> AsyncIterator[str]:
        yield "retry: 3000\n: watching\n\n"
        if not visit.may("WatchJobs"):
            return
        with visit.account.changes.listening(job_id) as listener:
            async for has_changed in listener.changes():
                if not self._sessions.is_open(visit.session):
                    yield "event: ended\ndata:\n\n"
                    return
                yield "event: changed\ndata:\n\n" if has_changed else ": quiet\n\n"
