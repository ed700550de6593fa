"""The overview (findings, figures, charts, topics), and its live events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.responses import Response, StreamingResponse

from pulse import ServerInfo, Statistics, TopicPage, WorkerInfo
from pulse_ui import tuning
from pulse_ui.views.overview.charts import charts_of, latency_words
from pulse_ui.views.overview.drawing import HEIGHT, LINE_WIDTH, moment
from pulse_ui.views.overview.figures import depth_of, pace_of, worker_totals
from pulse_ui.views.overview.findings import Finding, findings_view, summarized
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
    found = findings_view(needed)
    charts = charts_context(visit, choice, statistics)
    return await visit.page(
        "overview.html",
        title="Overview",
        live="jobs",
        topic=None,
        findings=summarized(found),
        findings_shown=tuning.FINDINGS_SHOWN,
        depth=depth_of((page.sum,)),
        workers=worker_totals(workers),
        servers=servers,
        scheduler=scheduler,
        is_empty=not page.total and not choice.search,
        with_depth=False,
        has_happened=any(bucket.attempts or bucket.submitted for bucket in charts["buckets"]),
        server=client.address,
        **charts,
        **await topics_context(visit, choice, page, found),
    )


def charts_context(visit: Visit, choice: OverviewQuery, statistics: Statistics) -> dict[str, Any]:
    """Return the charts and the numbers of a span, as the overview and the page of a topic show them."""
    buckets = buckets_of(statistics.minutes, MINUTES_TOGETHER[choice.minutes])
    # The same minutes as the charts, so that their numbers agree.
    shown = [minute for minute in statistics.minutes if minute.at and minute.at >= buckets[0].at]
    return {
        "choice": choice,
        "spans": SPANS,
        "pace": pace_of(shown),
        "wait": statistics.wait,
        "run": statistics.run,
        "buckets": buckets,
        "charts": charts_of(buckets, choice.minutes, statistics.wait, statistics.run, visit.zone),
        "chart_height": HEIGHT,
        "line_width": LINE_WIDTH,
        "moment": lambda bucket: moment(bucket, visit.zone),
        "latency_words": latency_words,
    }


async def topics_context(
    visit: Visit, choice: OverviewQuery, busiest: TopicPage, found: Sequence[Finding] = ()
) -> dict[str, Any]:
    """Return the table of topics. It is by name if all were requested and do not fit on one page."""
    is_cut = busiest.total > len(busiest)
    by_name = None
    if choice.shows_all and is_cut:
        by_name = await visit.topics(
            search=choice.search, busiest=False, limit=tuning.TOPICS_PAGE, cursor=choice.cursor
        )
    if by_name:
        table = topic_table(by_name.topics, found, "topic")
    else:
        most = None if choice.shows_all else tuning.TOPICS_SHOWN
        table = topic_table(busiest.topics, found, choice.sort, most)
    return {
        "table": table,
        "topic_count": busiest.total,
        "busiest_of": len(busiest) if is_cut else None,
        "next_topics": choice.page_path(by_name.next_cursor) if by_name and by_name.next_cursor else None,
    }


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
