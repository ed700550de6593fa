"""The overview: findings, figures, charts, topics, and its live events. Dead letters, and their actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response, StreamingResponse

import pulse
from pulse import ServerInfo, Statistics, TopicPage, WorkerInfo
from pulse.ids import uuid7
from pulse_text import printable
from pulse_ui import tuning, words
from pulse_ui.overview.charts import (
    HEIGHT,
    LINE_WIDTH,
    MINUTES_TOGETHER,
    NO_LATENCY,
    buckets_of,
    charts_of,
    latency_words,
    moment,
)
from pulse_ui.overview.views import (
    SPANS,
    Finding,
    OverviewQuery,
    dead_letters_view,
    depth_of,
    findings_view,
    pace_of,
    read_overview_query,
    summarized,
    topic_path,
    topic_table,
    worker_totals,
)
from pulse_ui.web.forms import Form, further_attempts, local_path, whole_number
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


# ---------------------------------------------------------------- dead letters

_PATH = "/dead-letters"


async def show_dead_letters(visit: Visit) -> Response:
    chosen = visit.query.raw("topic") or None
    letters, topics = await asyncio.gather(
        visit.client.dead_letters(topic=chosen), visit.topics(names=[chosen] if chosen else ())
    )
    return await visit.page(
        "dead_letters.html",
        title="Dead letters",
        live="jobs",
        letters=dead_letters_view(letters, topics.topics, chosen, topics.sum.dead_lettered),
        chosen=chosen or "",
    )


async def retry_one(visit: Visit, form: Form) -> Response:
    job = await _retry_some(visit, form)
    return visit.go(
        local_path(form.raw("back"), _PATH),
        f"One dead letter of {printable.one_line(job.topic)} was retried.",
        link=(f"/jobs/{job.id}", "Follow it"),
    )


async def retry_all(visit: Visit, form: Form) -> Response:
    which = _group_of(form)
    attempts, action_id = further_attempts(form), uuid7()
    steps = visit.client.retry_matching(
        attempts=attempts,
        reason=form.reason,
        action_id=action_id,
        timeout=tuning.STEP_TIMEOUT,
        **which,
    )
    return await _begin(visit, form, steps, verb="Retry", done_word="retried", undo_id=action_id)


async def delete_all(visit: Visit, form: Form) -> Response:
    steps = visit.client.delete_matching(reason=form.reason, timeout=tuning.STEP_TIMEOUT, **_group_of(form))
    return await _begin(visit, form, steps, verb="Delete", done_word="deleted")


async def _retry_some(visit: Visit, form: Form) -> pulse.JobInfo:
    """Retry the job shown on the page or, if it is gone, another one of its group."""
    try:
        return await visit.client.retry(form.text("job"), reason=form.reason)
    except (pulse.InvalidTransition, pulse.NotFound):
        if not visit.may("ListJobs"):
            raise
        for other in await visit.client.list_jobs(limit=1, **_group_of(form)):
            return await visit.client.retry(other.id, reason=form.reason)
        raise


def _group_of(form: Form) -> pulse.JobFilter:
    """Return the filter of the form. Raises InvalidArgument unless it names one group and its count.

    An incomplete filter would match more jobs than were confirmed.
    """
    topic, group, counted_at = form.raw("topic"), form.text("error_group"), form.text("before")
    try:
        before = datetime.fromisoformat(counted_at)
    except ValueError:
        before = None
    if not topic or not group or before is None or before.utcoffset() is None:
        raise pulse.InvalidArgument("The form does not name a group of dead letters. Nothing was changed.")
    # Jobs submitted after the count were not part of the confirmation.
    return {"topic": topic, "status": "DEAD_LETTERED", "error_group": group, "before": before}


async def _begin(
    visit: Visit,
    form: Form,
    steps: AsyncGenerator[int, None],
    *,
    verb: str,
    done_word: str,
    undo_id: str = "",
) -> Response:
    count = whole_number(form, "count", "The count")
    back = local_path(form.raw("back"), _PATH)
    how_many = "dead letters" if count is None else words.plural(count, "dead letter")
    return await visit.begin(
        steps,
        title=f"{verb} {how_many} of {printable.one_line(form.raw('topic'))}",
        done_word=done_word,
        total=count,
        back=back,
        again=back,
        undo_id=undo_id,
    )
