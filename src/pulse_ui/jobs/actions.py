"""Actions on several jobs, selected or matching a filter: the confirmation, the action, and its progress."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

from starlette.responses import Response

import pulse
from pulse import JobStatus
from pulse.ids import uuid7
from pulse_text.jobs import LIVE, RETRYABLE, STATUS_WORDS, TERMINAL
from pulse_text.times import iso
from pulse_ui import tuning
from pulse_ui.jobs.filters import JobQuery, fields_of, in_words, past_moment, read_filter
from pulse_ui.jobs.views import job_rows
from pulse_ui.web.forms import Form, further_attempts, local_path, required_number, whole_number
from pulse_ui.web.operations import Act, Operation, act_on_each, each
from pulse_ui.web.rendering import Refused
from pulse_ui.web.visits import Visit
from pulse_ui.words import count, plural

_NO_JOBS_BEFORE = datetime(1970, 1, 2, tzinfo=UTC)


async def confirm(visit: Visit) -> Response:
    """Show the jobs of an action and its consequence. Changes nothing."""
    query = visit.query
    action = ACTIONS.get(query.text("action"))
    if action is None:
        raise Refused(400, f"Unknown action. The actions are {', '.join(ACTIONS)}.")
    visit.require(action.needs)
    asked = read_filter(query.items(), now=datetime.now(UTC), zone=visit.zone)
    if query.text("all"):
        return await _confirm_all(visit, action, asked)
    return await _confirm_selected(visit, action, asked, selected(query))


async def _confirm_all(visit: Visit, action: JobAction, asked: JobQuery) -> Response:
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


async def _confirm_selected(visit: Visit, action: JobAction, asked: JobQuery, ids: list[str]) -> Response:
    jobs, gone = await _fetch(visit, ids, asked, visit.query.text("cursor") or None)
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


async def _count(visit: Visit, asked: JobQuery) -> tuple[int | None, datetime]:
    """Return the count and its time by the clock of the database. None: there are too many to count."""
    if asked.status is pulse.JobStatus.COMPLETED:
        # Counts nothing and returns the time: jobs submitted later are not part of the action.
        counted = await visit.client.count_jobs(status=pulse.JobStatus.CANCELED, before=_NO_JOBS_BEFORE)
        return None, counted.counted_at or datetime.now(UTC)
    counted = await visit.client.count_jobs(**asked.which)
    return None if counted.at_least else counted.count, counted.counted_at or datetime.now(UTC)


async def _sample(visit: Visit, action: JobAction, which: pulse.JobFilter) -> list[pulse.JobInfo]:
    """Return the newest jobs that match. Without a status: of each status that the action applies to."""
    statuses = [which["status"]] if which.get("status") else action.statuses
    filters = [pulse.JobFilter(**{**which, "status": status}) for status in statuses]
    pages = await asyncio.gather(
        *(visit.client.list_jobs(limit=tuning.JOBS_CONFIRMED, **one) for one in filters)
    )
    found = [job for page in pages for job in page]
    found.sort(key=lambda job: (job.submitted_at or _NO_JOBS_BEFORE, job.id), reverse=True)
    return found[: tuning.JOBS_CONFIRMED]


async def _fetch(
    visit: Visit, ids: list[str], asked: JobQuery, cursor: str | None
) -> tuple[list[pulse.JobInfo], list[str]]:
    """Return the jobs with these ids, and the ids that no longer exist."""
    known: dict[str, pulse.JobInfo] = {}
    if len(ids) > 1 and not asked.problems:
        # The page they were selected on still has most of them, in one call and without payloads.
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


Steps = Callable[[pulse.JobFilter], AsyncGenerator[int, None]]


class _Asked(TypedDict):
    """What all calls of an action have in common: they are one entry of the audit."""

    reason: str
    action_id: str


def _asked(form: Form) -> _Asked:
    return {"reason": form.reason, "action_id": uuid7()}


async def cancel(visit: Visit, form: Form) -> Response:
    asked = _asked(form)
    return await _act(
        visit,
        form,
        ACTIONS["cancel"],
        asked["action_id"],
        lambda job_id: visit.client.cancel(job_id, **asked),
        lambda which: visit.client.cancel_matching(timeout=tuning.STEP_TIMEOUT, **asked, **which),
    )


async def retry(visit: Visit, form: Form) -> Response:
    attempts, now, asked = further_attempts(form), bool(form.text("now")), _asked(form)
    return await _act(
        visit,
        form,
        ACTIONS["retry"],
        asked["action_id"],
        lambda job_id: visit.client.retry(job_id, attempts, now=now, **asked),
        lambda which: visit.client.retry_matching(
            attempts=attempts, now=now, timeout=tuning.STEP_TIMEOUT, **asked, **which
        ),
    )


async def delete(visit: Visit, form: Form) -> Response:
    asked = _asked(form)
    return await _act(
        visit,
        form,
        ACTIONS["delete"],
        asked["action_id"],
        lambda job_id: visit.client.delete(job_id, **asked),
        lambda which: visit.client.delete_matching(timeout=tuning.STEP_TIMEOUT, **asked, **which),
    )


async def prioritize(visit: Visit, form: Form) -> Response:
    priority = required_number(form, "priority", "Priority", between=tuning.PRIORITIES)
    asked = _asked(form)
    return await _act(
        visit,
        form,
        ACTIONS["prioritize"],
        asked["action_id"],
        lambda job_id: visit.client.prioritize(job_id, priority, **asked),
        lambda which: visit.client.prioritize_matching(
            priority, timeout=tuning.STEP_TIMEOUT, **asked, **which
        ),
    )


async def _act(
    visit: Visit, form: Form, action: JobAction, action_id: str, act: Act, steps: Steps
) -> Response:
    list_path = form.raw("list")
    undo_id = action_id if action.can_be_undone else ""
    if form.text("all"):
        return await _act_on_all(visit, form, action, undo_id, steps)
    ids = selected(form)
    if not ids:
        return visit.go(list_path, "No job was selected.", kind="bad")
    outcome = await act_on_each(ids, act)
    may_undo = undo_id and outcome.done and visit.may("UndoAction")
    return visit.go(
        list_path,
        outcome.sentence(action.done),
        kind="good" if outcome.is_good else "bad",
        link=(f"/audit/{undo_id}/undo", "Undo…") if may_undo else None,
    )


async def _act_on_all(visit: Visit, form: Form, action: JobAction, undo_id: str, steps: Steps) -> Response:
    now = datetime.now(UTC)
    asked = read_filter(form.items(), now=now, zone=visit.zone)
    check_filter(action, asked)
    try:
        counted_at = past_moment(form.text("counted_at"), now=now, zone=visit.zone)
    except ValueError:
        raise pulse.InvalidArgument("The form has no time of the count. Start again from the list.") from None
    total = whole_number(form, "total", "The count")
    title = action.sentence(in_words(asked.which, visit.zone, number=total))
    which = asked.which
    # Jobs submitted after the count were not part of the confirmation.
    which["before"] = min(which.get("before") or counted_at, counted_at)
    return await visit.begin(
        steps(which),
        title=title,
        done_word=action.done,
        total=total,
        back=local_path(form.raw("list"), "/jobs"),
        again=local_path(form.raw("back"), "/jobs"),
        undo_id=undo_id,
    )


# ------------------------------------------------------------ form fields


def selected(form: Form) -> list[str]:
    """Return the ids of the selected jobs. Raises Refused for too many."""
    ids = [job_id for job_id in form.texts("id") if job_id]
    if len(ids) > tuning.SELECTED_JOBS:
        raise Refused(
            400,
            f"{count(tuning.SELECTED_JOBS)} jobs at once are the limit. Use a filter to act on more.",
        )
    return ids


def check_filter(action: JobAction, asked: JobQuery) -> None:
    """Refuse a filter that may match more than the user expects. Raises InvalidArgument."""
    if asked.problems:
        raise pulse.InvalidArgument(f"Nothing was changed: {next(iter(asked.problems.values()))}")
    if asked.is_any:
        raise pulse.InvalidArgument("This would affect every job. Filter by topic, status or time first.")
    if not action.takes(asked.status):
        raise pulse.InvalidArgument(f"Choose a status. Only {action.able} jobs can be {action.done}.")


# ---------------------------------------------------------------- operations
# An action on many jobs goes on in the background. Its page shows the progress and the result.

_NUMBER = re.compile(r"[0-9]{1,12}")


async def show_operation(visit: Visit) -> Response:
    operation = _wanted(visit)
    return await visit.page(
        "operation.html",
        title=operation.title,
        live="jobs" if operation.is_running else None,
        refresh_seconds=tuning.OPERATION_REFRESH_SECONDS,
        operation=operation,
    )


async def stop_operation(visit: Visit, form: Form) -> Response:
    operation = _wanted(visit)
    operation.stop()
    return visit.go(f"/operations/{operation.number}")


def _wanted(visit: Visit) -> Operation:
    number = visit.part("number")
    operation = visit.account.operations.get(int(number)) if _NUMBER.fullmatch(number) else None
    if operation is None:
        raise Refused(
            404,
            f"There is no operation {number[:20]}: it ended long ago, or the dashboard was restarted. "
            "See the list of jobs for their current state.",
        )
    return operation


# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class JobAction:
    verb: str
    """As in its URL."""
    label: str
    """On its button."""
    done: str
    """The past participle, such as canceled."""
    needs: str
    """The RPC."""
    statuses: tuple[str, ...]
    """The statuses it applies to."""
    consequence: str
    """Its effect, shown before the confirmation."""
    needs_status: bool = False
    """pulsed requires a status for an action on many."""
    is_grave: bool = False

    def takes(self, status: JobStatus | None) -> bool:
        """True if it applies to all jobs of this status; None: of any status."""
        return not self.needs_status if status is None else status in self.statuses

    def sentence(self, jobs: str) -> str:
        """Return the action in words: "Cancel 3 jobs"."""
        return f"Change the priority of {jobs}" if self.verb == "prioritize" else f"{self.label} {jobs}"

    def question(self, number: int) -> str:
        return self.sentence(plural(number, "job"))

    @property
    def can_be_undone(self) -> bool:
        return self.verb != "delete"

    @property
    def able(self) -> str:
        """The statuses in words: "dead-lettered or canceled"."""
        *others, last = (STATUS_WORDS[status] for status in self.statuses)
        return f"{', '.join(others)} or {last}"


ACTIONS = {
    action.verb: action
    for action in (
        JobAction(
            "cancel",
            "Cancel",
            "canceled",
            "CancelJobs",
            LIVE,
            "Waiting jobs will not run. The handlers of running jobs are asked to stop. "
            "Canceled jobs can be retried.",
            is_grave=True,
        ),
        JobAction(
            "retry",
            "Retry",
            "retried",
            "RetryJobs",
            RETRYABLE,
            "They become pending, with further attempts. A canceled job that never started keeps its later "
            "start time.",
            needs_status=True,
        ),
        JobAction(
            "prioritize",
            "Change priority",
            "changed",
            "PrioritizeJobs",
            LIVE,
            "Jobs with a higher priority run first. Running jobs are not interrupted.",
        ),
        JobAction(
            "delete",
            "Delete",
            "deleted",
            "DeleteJobs",
            TERMINAL,
            "They are deleted with their payloads, histories and idempotency keys. This cannot be undone.",
            needs_status=True,
            is_grave=True,
        ),
    )
}
