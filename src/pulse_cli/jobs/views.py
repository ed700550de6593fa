"""Jobs as rows, in a few words, in full and as JSON; their changes, steps and progress."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.output import (
    Shape,
    View,
    blank,
    event,
    facts,
    fields_shape,
    heading,
    indented,
    payload_shape,
    payload_text,
    timeline,
)
from pulse_cli.terminal import (
    QUIET,
    Cell,
    Column,
    Line,
    Row,
    ago,
    bar,
    cut_line,
    lay_out,
    line_width,
    now,
)
from pulse_text import printable
from pulse_text.jobs import percent, plain_facts, rest, summary, what_a_step_did, what_it_waits_for
from pulse_text.times import format_duration, iso
from pulse_text.workflows import waits_for

if TYPE_CHECKING:
    import pulse

_STYLES = {
    "PENDING": "cyan",
    "RUNNING": "blue",
    "RETRYING": "yellow",
    "COMPLETED": "green",
    "DEAD_LETTERED": "red",
    "CANCELED": QUIET,
}


def status_cell(status: str) -> Cell:
    """Return a status with its color."""
    return Cell(str(status), _STYLES.get(status, ""))


def job_view(why: Mapping[str, pulse.Explanation] | None = None) -> View[pulse.JobInfo]:
    """Return the view of a list of jobs. `why` has explanations by job."""
    present = now()

    def row(job: pulse.JobInfo) -> Row:
        submitted = "–" if job.submitted_at is None else ago(job.submitted_at, present)
        return [
            Cell(job.id),
            Cell(printable.one_line(job.topic)),
            status_cell(job.status),
            Cell(f"{job.attempts}/{job.max_attempts}"),
            Cell(str(job.priority), QUIET if job.priority == 0 else ""),
            Cell(submitted),
            Cell(state(job, present, (why or {}).get(job.id)), QUIET),
        ]

    columns = (
        Column("ID"),
        Column("TOPIC", shortest=8, drop=1),
        Column("STATUS"),
        Column("TRIES", drop=2, right=True),
        Column("PRIO", drop=5, right=True),
        Column("SUBMITTED", drop=3),
        Column("STATE", shortest=14, drop=4),
    )
    fields = (
        "id",
        "topic",
        "status",
        "attempts",
        "max_attempts",
        "priority",
        "submitted_at",
        "next_run_at",
        "started_at",
        "finished_at",
        "worker_id",
        "last_error",
    )
    return View(columns, row, job_shape, fields)


def state(job: pulse.JobInfo, present: datetime, why: pulse.Explanation | None = None) -> str:
    """Return why a job waits, which worker runs it, or how it ended. `why` is the server's answer."""
    if why is not None and why.cause not in ("", "finished") and not job.status.is_finished:
        return printable.one_line(why.brief)
    error = printable.summary(job.last_error or "")
    match str(job.status):
        case "PENDING" | "RETRYING":
            due = job.next_run_at
            if job.waits_for_jobs:
                return "waits for other jobs"
            if job.waits_for is not None:
                return what_it_waits_for(job.waits_for, due, present)
            wait = f"runs {ago(due, present)}" if due is not None and due > present else "waits for a worker"
            return f"{wait}: {error}" if error else wait
        case "RUNNING":
            since = "" if job.started_at is None else f" for {format_duration(present - job.started_at)}"
            done = "" if job.progress is None else percent(job.progress)
            return printable.one_line(f"on {job.worker_id}{since}{f', {done} done' if done else ''}")
        case "COMPLETED":
            if job.started_at is None or job.finished_at is None:
                return ""
            return f"took {format_duration(job.finished_at - job.started_at)}"
    return error


def describe_job(
    job: pulse.JobInfo,
    steps: Sequence[pulse.StepInfo] = (),
    workflow: pulse.WorkflowInfo | None = None,
    parents: Sequence[pulse.WorkflowJob] = (),
    why: pulse.Explanation | None = None,
    canceled: pulse.AuditEntry | None = None,
) -> Iterator[Line]:
    """Yield the description of a job, line by line. `parents` are the jobs that it waits for.

    `canceled` is the action that canceled it.
    """
    present = now()
    yield [Cell(job.id, "bold"), Cell("  "), status_cell(job.status)]
    waits = str(job.status) in ("PENDING", "RETRYING")
    ended_badly = str(job.status) in ("DEAD_LETTERED", "CANCELED")  # the last section shows why
    yield from facts(
        ("Topic", job.topic),
        ("State", "" if ended_badly else _state(job, present, parents, why)),
        ("To do", "" if why is None or ended_badly else why.remedy),
        ("Canceled", None if canceled is None else cancel_text(canceled, present)),
        ("Progress", progress_fact(job, present)),
        ("Cursor", _cursor(job)),
        ("Attempts", _attempts(job)),
        ("Priority", str(job.priority)),
        ("Submitted", job.submitted_at),
        ("Next run", job.next_run_at if waits and not job.waits_for_jobs else None),
        ("Start by", job.start_by if waits else None),
        ("Started", job.started_at),
        ("Finished", job.finished_at),
        ("Lease until", job.lease_until),
        ("Worker", job.worker_id),
        ("Lane", job.lane),
        *((label, f"{text} ({remark})" if remark else text) for label, text, remark in plain_facts(job)),
        ("Schedule", job.schedule_id),
        ("Workflow", job.workflow_id if workflow is None else f"{workflow.name} ({workflow.id})"),
        *((f"@{name}", value) for name, value in sorted(job.metadata.items())),
        present=present,
    )
    yield blank()
    yield heading("Timeline")
    yield from timeline(_timeline(job, present))
    if steps:
        yield blank()
        yield heading("Steps")
        yield from describe_steps(steps, present)
    if job.payload:
        yield blank()
        yield heading("Payload")
        yield from indented(payload_text(job.payload))
    if job.result_bytes is not None:
        yield blank()
        yield heading("Result")
        yield from indented(payload_text(job.result_bytes))
    if job.last_error and (canceled is None or canceled.reason != job.last_error):
        yield blank()
        yield heading("Last error" if _has_failed_with(job) else "Why it was canceled")
        yield from indented(printable.lines(job.last_error), "red" if str(job.status) != "COMPLETED" else "")


def _state(
    job: pulse.JobInfo,
    present: datetime,
    parents: Sequence[pulse.WorkflowJob],
    why: pulse.Explanation | None,
) -> str:
    """Return the state in full: a whole sentence if something stops the job."""
    if parents:
        return waits_for(parents, present)
    if why is not None and why.cause not in ("", "finished") and not job.status.is_finished:
        return why.sentence
    return state(job, present)


def describe_explanation(name: str, why: pulse.Explanation) -> Iterator[Line]:
    """Yield why a job does not run, or why a topic starts no jobs."""
    yield [
        Cell(name, "bold"),
        Cell(f"  {why.cause or 'nothing stops it'}", "yellow" if why.cause else "green"),
    ]
    yield from indented(printable.one_line(why.sentence))
    yield from facts(("To do", why.remedy), ("Expected", why.expected_at), present=now())


def explanation_shape(why: pulse.Explanation) -> Shape:
    """Return an explanation in JSON."""
    return {
        "job_id": why.job_id,
        "cause": why.cause,
        "sentence": why.sentence,
        "remedy": why.remedy,
        "expected_at": None if why.expected_at is None else iso(why.expected_at),
        "brief": why.brief,
    }


def _has_failed_with(job: pulse.JobInfo) -> bool:
    """Whether the last error is that of an attempt, and not the reason of a cancel."""
    failed = [past.error for past in job.history if past.outcome != "canceled"]
    return str(job.status) != "CANCELED" or any((job.last_error or "").startswith(error) for error in failed)


def _attempts(job: pulse.JobInfo) -> str:
    """Return attempts and their maximum, and the numbers of snoozes, suspensions and crashes."""
    parts = [f"{job.attempts} of {job.max_attempts}"]
    if job.snoozes:
        parts.append(f"{job.snoozes} snoozed")
    if job.suspensions:
        parts.append(f"{job.suspensions} suspended")
    if job.crashes:
        parts.append("1 crash" if job.crashes == 1 else f"{job.crashes} crashes")
    return ", ".join(parts)


def _cursor(job: pulse.JobInfo) -> str | None:
    if job.progress is None or job.progress.cursor is None:
        return None
    return json.dumps(job.progress.cursor, ensure_ascii=False)


def _timeline(job: pulse.JobInfo, present: datetime) -> Iterator[Row]:
    if job.submitted_at is not None:
        yield event(job.submitted_at, present, "submitted")
    for past in job.history:
        took = ""
        if past.started_at is not None and past.ended_at is not None:
            took = f" after {format_duration(past.ended_at - past.started_at)}"
        worker = f" on {past.worker_id}" if past.worker_id else ""
        text = f"attempt {past.attempt} {past.outcome.replace('_', ' ')}{took}{worker}"
        style = QUIET if past.outcome in ("snoozed", "suspended") else "red"
        yield event(past.ended_at, present, text, Cell(printable.summary(past.error), style))
    if str(job.status) == "RUNNING":
        yield event(job.started_at, present, f"attempt {job.attempts} started on {job.worker_id}")
    elif str(job.status) == "COMPLETED":
        by = f" by {job.worker_id}" if job.worker_id else ""
        yield event(job.finished_at, present, f"attempt {job.attempts} completed{by}, {state(job, present)}")
    elif job.finished_at is not None:
        yield event(job.finished_at, present, str(job.status).lower().replace("_", "-"))
    elif job.next_run_at is not None and job.next_run_at > present and not job.waits_for_jobs:
        yield event(job.next_run_at, present, f"attempt {job.attempts + 1} is due")


# ---------------------------------------------------------------- transitions

TRANSITION_FIELDS = ("at", "status", "topic", "job_id", "attempt", "worker_id", "error")
_STATUS_WIDTH = len("DEAD_LETTERED")
_INDENT = " " * len("00:00:00 ")


def transition_lines(changes: Sequence[pulse.Transition], width: int | None) -> Iterator[Line]:
    """Yield a line per transition, and a second one for an error that does not fit; None is any width."""
    for change in changes:
        line = _line(change)
        error = [Cell(printable.summary(change.error or ""), "red")] if change.error else []
        whole = [*line, Cell(": "), *error] if error else line
        if width is None or line_width(whole) <= width:
            yield whole
            continue
        yield cut_line(line, width)
        if error:  # an error that would be cut off gets its own line
            yield cut_line([Cell(_INDENT), *error], width)


def _line(change: pulse.Transition) -> Line:
    cell = status_cell(change.status)
    line = [
        Cell(_clock(change.at) + " ", QUIET),
        cell,
        Cell(" " * (_STATUS_WIDTH - len(cell.text) + 1)),
        Cell(change.job_id + " "),
        Cell(printable.one_line(change.topic), "bold"),
    ]
    if change.attempt:
        line.append(Cell(f" attempt {change.attempt}"))
    if change.worker_id:
        line.append(Cell(f" on {printable.one_line(change.worker_id)}", QUIET))
    return line


def _clock(moment: datetime | None) -> str:
    return "--:--:--" if moment is None else moment.astimezone().strftime("%H:%M:%S")


def cancel_text(entry: pulse.AuditEntry, present: datetime) -> str:
    """Return by which user, when and why: by ada 3m ago: wrong price list."""
    by = f"by {entry.user}" if entry.user else f"from {entry.address}"
    when = "" if entry.at is None else f" {ago(entry.at, present)}"
    return f"{by}{when}: {entry.reason}" if entry.reason else f"{by}{when}"


# ---------------------------------------------------------------- steps


def describe_steps(steps: Sequence[pulse.StepInfo], present: datetime) -> Iterator[Line]:
    """Yield a line for each step."""
    yield from timeline(_row(step, present) for step in steps)


def _row(step: pulse.StepInfo, present: datetime) -> Row:
    took = ""
    if step.kind == "step" and step.started_at is not None and step.stored_at is not None:
        took = f", took {format_duration(step.stored_at - step.started_at)}"
    did = Cell(f"{what_a_step_did(step, present)}{took}", QUIET)
    return event(step.stored_at or step.started_at, present, step.name, did)


def job_shape_with_steps(job: pulse.JobInfo, steps: Sequence[pulse.StepInfo]) -> Shape:
    """A whole job and its steps as JSON."""
    return whole_job_shape(job) | {"step_list": [step_shape(step) for step in steps]}


def step_shape(step: pulse.StepInfo) -> Shape:
    """A step as JSON."""
    return fields_shape(step, "name kind attempt started_at stored_at until size timed_out")


# ---------------------------------------------------------------- progress

_BAR_WIDTH = 20
_STEPS = 1000
_COLUMNS = (
    Column("RUNNING", shortest=8),
    Column("TOPIC", shortest=8, drop=2),
    Column("", drop=3),
    Column("DONE", right=True),
    Column("TEXT", shortest=10, drop=1),
    Column("LEFT", drop=4),
)


def progress_fact(job: pulse.JobInfo, present: datetime) -> str:
    """Return the progress of a job in a line, with its bar."""
    progress = job.progress
    if progress is None:
        return ""
    runs = str(job.status) == "RUNNING"
    text = summary(progress, present, runs=runs and progress.attempt == job.attempts)
    if runs and progress.attempt != job.attempts:
        text += f" (attempt {progress.attempt})"
    return f"{share_bar(progress)} {text}".strip()


def share_bar(progress: pulse.Progress) -> str:
    """Return the bar, as wide as if it were full. Empty if the share is not known."""
    if progress.fraction is None:
        return ""
    drawn = bar(int(progress.fraction * _STEPS), _STEPS, _BAR_WIDTH)
    return f"▕{drawn:<{_BAR_WIDTH}}▏"


def progress_lines(workers: Sequence[pulse.WorkerInfo], present: datetime, width: int | None) -> list[Line]:
    """Return a table of the held jobs that have progress, the nearest to its end first. Empty if none has."""
    found = [(job, job.progress) for worker in workers for job in worker.held if job.progress is not None]
    found.sort(key=lambda pair: -(pair[1].fraction or 0.0))
    rows: list[Row] = [
        [
            Cell(job.id),
            Cell(printable.one_line(job.topic)),
            Cell(share_bar(progress), "green"),
            Cell(percent(progress)),
            Cell(printable.one_line(progress.text)),
            Cell(rest(progress, present) if progress.attempt == job.attempt else "", QUIET),
        ]
        for job, progress in found
    ]
    return lay_out(_COLUMNS, rows, width) if rows else []


# ---------------------------------------------------------------- JSON

_ATTEMPT = "attempt outcome worker_id started_at ended_at error error_class"
# The first keys of a job. The other fields follow in their order, but for those that are not in lists.
_FIRST = "id topic status attempts max_attempts priority"
_APART = {*_FIRST.split(), "payload", "history", "result_bytes", "no_worker"}


def job_shape(job: pulse.JobInfo) -> Shape:
    """A job in a list."""
    rest = [field.name for field in dataclasses.fields(job) if field.name not in _APART]
    return fields_shape(job, " ".join([_FIRST, *rest, "error_class"]))


def whole_job_shape(job: pulse.JobInfo) -> Shape:
    """A job on its own: with its payload, its result and its failed attempts."""
    return (
        job_shape(job)
        | payload_shape(job.payload)
        | payload_shape(job.result_bytes or b"", "result")
        | {"traceback": job.traceback}
        | {"history": [fields_shape(past, _ATTEMPT) for past in job.history]}
    )


def handle_shape(handle: pulse.JobHandle) -> Shape:
    """A job that was stored."""
    return fields_shape(handle, "id topic duplicate replaced submitted_at")


def transition_shape(change: pulse.Transition) -> Shape:
    """One transition of a job."""
    return {"event": "transition"} | fields_shape(change, "at status topic job_id attempt worker_id error")


def gap_shape(news: pulse.Transitions) -> Shape:
    """Transitions that were missed."""
    return {"event": "gap", "missed": news.missed, "interrupted": news.interrupted}
