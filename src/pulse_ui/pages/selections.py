"""Acts on several jobs: those that were ticked, or all that match. confirmations.py has asked before."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime

from starlette.responses import Response

import pulse
from pulse_ui import tuning
from pulse_ui.pages import operations
from pulse_ui.pages.whole_numbers import further_attempts, required_number, whole_number
from pulse_ui.views import limits
from pulse_ui.views.job_actions import ACTIONS, JobAction
from pulse_ui.views.job_filters import Asked, in_words, past_moment, read_filter
from pulse_ui.views.words import count
from pulse_ui.web.forms import Form, local_path
from pulse_ui.web.refusals import Refused
from pulse_ui.web.settling import Settling, settle_each
from pulse_ui.web.visits import Visit

Steps = Callable[[pulse.JobFilter], AsyncGenerator[int, None]]


async def cancel(visit: Visit, form: Form) -> Response:
    reason = form.text("reason")
    return await _act(
        visit,
        form,
        ACTIONS["cancel"],
        lambda job_id: visit.client.cancel(job_id, reason),
        lambda which: visit.client.cancel_matching(reason=reason, timeout=tuning.STEP_TIMEOUT, **which),
    )


async def retry(visit: Visit, form: Form) -> Response:
    attempts = further_attempts(form)
    return await _act(
        visit,
        form,
        ACTIONS["retry"],
        lambda job_id: visit.client.retry(job_id, attempts),
        lambda which: visit.client.retry_matching(attempts=attempts, timeout=tuning.STEP_TIMEOUT, **which),
    )


async def delete(visit: Visit, form: Form) -> Response:
    return await _act(
        visit,
        form,
        ACTIONS["delete"],
        visit.client.delete,
        lambda which: visit.client.delete_matching(timeout=tuning.STEP_TIMEOUT, **which),
    )


async def prioritize(visit: Visit, form: Form) -> Response:
    priority = required_number(form, "priority", "Priority", between=limits.PRIORITIES)
    reason = form.text("reason")
    return await _act(
        visit,
        form,
        ACTIONS["prioritize"],
        lambda job_id: visit.client.prioritize(job_id, priority, reason),
        lambda which: visit.client.prioritize_matching(
            priority, reason=reason, timeout=tuning.STEP_TIMEOUT, **which
        ),
    )


async def _act(visit: Visit, form: Form, action: JobAction, settle: Settling, steps: Steps) -> Response:
    list_path = form.raw("list")
    if form.text("all"):
        return await _act_on_all(visit, form, action, steps)
    ids = ticked(form)
    if not ids:
        return visit.go(list_path, "No job was selected, so nothing happened.", kind="bad")
    outcome = await settle_each(ids, settle)
    return visit.go(list_path, outcome.told(action.done), kind="good" if outcome.is_good else "bad")


async def _act_on_all(visit: Visit, form: Form, action: JobAction, steps: Steps) -> Response:
    now = datetime.now(UTC)
    asked = read_filter(form.items(), now=now, zone=visit.zone)
    check_filter(action, asked)
    try:
        counted_at = past_moment(form.text("counted_at"), now=now, zone=visit.zone)
    except ValueError:
        raise pulse.InvalidArgument("The form does not say when was counted: begin again.") from None
    total = whole_number(form, "total", "The count")
    title = action.told(in_words(asked.which, visit.zone, number=total))
    which = asked.which
    # What is submitted after the count was not shown, and is not what was agreed to.
    which["before"] = min(which.get("before") or counted_at, counted_at)
    return await operations.begin(
        visit,
        steps(which),
        title=title,
        done_word=action.done,
        total=total,
        back=local_path(form.raw("list"), "/jobs"),
        again=local_path(form.raw("back"), "/jobs"),
    )


# ------------------------------------------------------------ what was sent


def ticked(form: Form) -> list[str]:
    """Return the ids of the jobs that were ticked. Raises Refused if they are too many."""
    ids = [job_id for job_id in form.texts("id") if job_id]
    if len(ids) > tuning.SELECTED_JOBS:
        raise Refused(
            400,
            f"{count(tuning.SELECTED_JOBS)} jobs at once are the most. Filter, and act on all that match.",
        )
    return ids


def check_filter(action: JobAction, asked: Asked) -> None:
    """Refuse what would act on other jobs than its user has in mind. Raises InvalidArgument."""
    if asked.problems:
        raise pulse.InvalidArgument(f"Nothing was changed: {next(iter(asked.problems.values()))}")
    if asked.is_any:
        raise pulse.InvalidArgument("That would be every job there is: filter by topic, status and so on.")
    if not action.takes(asked.status):
        raise pulse.InvalidArgument(
            f"Choose one status of which all jobs can be {action.done}: only {action.able} jobs can."
        )
