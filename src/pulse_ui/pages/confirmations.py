"""Asks before an action on several jobs: what would happen, to which, and to which not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from starlette.responses import Response

import pulse
from pulse_text.moments import iso
from pulse_ui import tuning
from pulse_ui.pages.selections import check_filter, ticked
from pulse_ui.views.job_actions import ACTIONS, JobAction
from pulse_ui.views.job_filters import Asked, fields_of, in_words, read_filter
from pulse_ui.views.job_rows import job_rows
from pulse_ui.views.words import plural
from pulse_ui.web.refusals import Refused
from pulse_ui.web.settling import each
from pulse_ui.web.visits import Visit

_NO_JOBS_BEFORE = datetime(1970, 1, 2, tzinfo=UTC)


async def show(visit: Visit) -> Response:
    """Show what would happen to which jobs. Changes nothing."""
    query = visit.query
    action = ACTIONS.get(query.text("action"))
    if action is None:
        raise Refused(400, f"Nothing like that can be done to jobs: {', '.join(ACTIONS)} can.")
    visit.require(action.needs)
    asked = read_filter(query.items(), now=datetime.now(UTC), zone=visit.zone)
    if query.text("all"):
        return await _confirm_all(visit, action, asked)
    return await _confirm_ticked(visit, action, asked, ticked(query))


async def _confirm_all(visit: Visit, action: JobAction, asked: Asked) -> Response:
    check_filter(action, asked)
    try:
        (total, counted_at), sample = await asyncio.gather(
            _count(visit, asked), _sample(visit, action, asked.which)
        )
    except pulse.DeadlineExceeded:
        raise pulse.InvalidArgument(
            "Counting takes too long: narrow the filter by topic, status or time."
        ) from None
    return await visit.page(
        "confirm.html",
        title=f"{action.label} jobs",
        action=action,
        total=total,
        is_all=True,
        said=in_words(asked.which, visit.zone, number=total),
        counted_at=counted_at,
        fields=[
            *fields_of(asked.which),
            ("all", "1"),
            ("counted_at", iso(counted_at)),
            ("total", "" if total is None else str(total)),
        ],
        able=job_rows(sample, datetime.now(UTC)),
        unable=[],
        gone=[],
        shown=tuning.JOBS_CONFIRMED,
        list_path=asked.path(),
    )


async def _confirm_ticked(visit: Visit, action: JobAction, asked: Asked, ids: list[str]) -> Response:
    jobs, gone = await _look_at(visit, ids, asked, visit.query.text("cursor") or None)
    able = [job for job in jobs if job.status in action.statuses]
    now = datetime.now(UTC)
    return await visit.page(
        "confirm.html",
        title=f"{action.label} jobs",
        action=action,
        total=len(able),
        is_all=False,
        said=plural(len(able), "job"),
        counted_at=None,
        fields=[("id", job.id) for job in able],
        able=job_rows(able[: tuning.JOBS_CONFIRMED], now),
        unable=job_rows([job for job in jobs if job.status not in action.statuses], now),
        gone=gone,
        shown=tuning.JOBS_CONFIRMED,
        list_path=asked.path(cursor=visit.query.text("cursor")),
    )


async def _count(visit: Visit, asked: Asked) -> tuple[int | None, datetime]:
    """Return how many match and when that was, by the clock of the database. Completed are not counted."""
    if asked.status is pulse.JobStatus.COMPLETED:
        # Counts nothing, and tells the time: what is submitted from here on is not part of it.
        counted = await visit.client.count_jobs(status=pulse.JobStatus.CANCELED, before=_NO_JOBS_BEFORE)
        return None, counted.counted_at or datetime.now(UTC)
    counted = await visit.client.count_jobs(**asked.which)
    return counted.count, counted.counted_at or datetime.now(UTC)


async def _sample(visit: Visit, action: JobAction, which: pulse.JobFilter) -> list[pulse.JobInfo]:
    """Return the newest few that match. Without a status: of each that the action takes."""
    statuses = [which["status"]] if which.get("status") else action.statuses
    filters = [pulse.JobFilter(**{**which, "status": status}) for status in statuses]
    pages = await asyncio.gather(
        *(visit.client.list_jobs(limit=tuning.JOBS_CONFIRMED, **one) for one in filters)
    )
    found = [job for page in pages for job in page]
    found.sort(key=lambda job: (job.submitted_at or _NO_JOBS_BEFORE, job.id), reverse=True)
    return found[: tuning.JOBS_CONFIRMED]


async def _look_at(
    visit: Visit, ids: list[str], asked: Asked, cursor: str | None
) -> tuple[list[pulse.JobInfo], list[str]]:
    """Return the jobs with these ids, and the ids of those that are gone."""
    known: dict[str, pulse.JobInfo] = {}
    if len(ids) > 1 and not asked.problems:
        # The page that they were ticked on still has most of them, in one answer and without payloads.
        try:
            page = await visit.client.list_jobs(limit=tuning.PAGE_SIZE, cursor=cursor, **asked.which)
        except pulse.InvalidArgument:
            page = pulse.Page((), None)
        known = {job.id: job for job in page}
    gone: list[str] = []

    async def look(job_id: str) -> None:
        try:
            known[job_id] = await visit.client.get_job(job_id)
        except (pulse.NotFound, pulse.InvalidArgument):
            gone.append(job_id)

    await each([job_id for job_id in ids if job_id not in known], look)
    return [known[job_id] for job_id in ids if job_id in known], gone
