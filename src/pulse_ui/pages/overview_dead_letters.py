"""Dead letters grouped by error, and the actions on a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime

from starlette.responses import Response

import pulse
from pulse.ids import uuid7
from pulse_text import printable
from pulse_ui import tuning, words
from pulse_ui.views.overview.dead_letters import dead_letters_view
from pulse_ui.web.forms import Form, further_attempts, local_path, whole_number
from pulse_ui.web.visits import Visit

_PATH = "/dead-letters"


async def show(visit: Visit) -> Response:
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
