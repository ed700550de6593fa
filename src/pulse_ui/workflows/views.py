"""Workflows and their jobs as rows, and the jobs of one as a table and as shapes that a template draws."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from urllib.parse import urlencode

import pulse
from pulse_text import printable
from pulse_text.jobs import STATUS_MARKS, STATUS_NAMES, STATUS_WORDS, what_it_waits_for
from pulse_ui import tuning, words
from pulse_ui.words import count
from pulse_ui.workflows.layout import BOX_HEIGHT, Box, Edge, Folded, Point, lay_out

STATUSES: Mapping[str, tuple[str, str, str]] = {
    "running": ("▶", "Running", "running"),
    "succeeded": ("✓", "Succeeded", "completed"),
    "failed": ("✕", "Failed", "dead_lettered"),
    "canceled": ("–", "Canceled", "canceled"),
}
"""The mark, the name and the class of each status of a workflow."""
_STYLES = {
    "succeeded": "completed",
    "failed": "dead_lettered",
    "canceled": "canceled",
    "skipped": "skipped",
}
"""The class of each outcome in the bar."""
_PARENTS_NAMED = 3


@dataclass(frozen=True, slots=True)
class Progress:
    parts: tuple[Part, ...]
    """In percent."""
    text: str
    """9,123 of 10,003 jobs ended, 3 failed."""


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    workflow: pulse.WorkflowInfo
    name: str
    mark: str
    status: str
    style: str
    progress: Progress
    took: float | None
    """Seconds from its submission to its end, or to now."""


def workflow_row(workflow: pulse.WorkflowInfo, now: datetime) -> WorkflowRow:
    # A later pulsed may know other statuses.
    mark, status, style = STATUSES.get(workflow.status, ("·", workflow.status, ""))
    took = None
    if workflow.submitted_at is not None:
        took = max(0.0, ((workflow.finished_at or now) - workflow.submitted_at).total_seconds())
    return WorkflowRow(
        workflow, printable.one_line(workflow.name), mark, status, style, progress_of(workflow), took
    )


def progress_of(workflow: pulse.WorkflowInfo) -> Progress:
    """Return the progress: the bar by outcome, and the same in words."""
    counts = {name: int(getattr(workflow, name)) for name in _STYLES}
    by_style = {_STYLES[name]: number for name, number in counts.items()}
    ended = workflow.jobs - workflow.unfinished
    others = [
        f"{words.count(number)} {name}" for name, number in counts.items() if number and name != "succeeded"
    ]
    text = f"{words.count(ended)} of {words.plural(workflow.jobs, 'job')} ended"
    parts = bar(by_style, workflow.jobs, width=100, least=1)
    return Progress(parts, ", ".join([text, *others]))


@dataclass(frozen=True, slots=True)
class Parent:
    name: str
    job_id: str


@dataclass(frozen=True, slots=True)
class WorkflowJobRow:
    job: pulse.WorkflowJob
    name: str
    kind: str
    mark: str
    status: str
    detail: str
    condition: str
    """When it runs, if not after successes alone."""
    parents: tuple[Parent, ...]
    """The first of the jobs that it waits for, or waited for."""
    more_parents: int
    took: float | None
    is_deleted: bool


def job_row(job: pulse.WorkflowJob, jobs: Mapping[int, pulse.WorkflowJob], now: datetime) -> WorkflowJobRow:
    """Return the row of a job. `jobs` are those of its workflow, by number."""
    kind = kind_of(job)
    parents = [jobs[number] for number in job.parents[:_PARENTS_NAMED] if number in jobs]
    return WorkflowJobRow(
        job=job,
        name=printable.one_line(job.name),
        kind=kind.lower(),
        mark=MARKS[kind],
        status=NAMES[kind],
        detail=_beside_the_status(job, kind, now),
        condition=CONDITIONS.get(job.when, ""),
        parents=tuple(Parent(printable.one_line(parent.name), parent.id) for parent in parents),
        more_parents=len(job.parents) - len(parents),
        took=took(job, now),
        is_deleted=not job.status,
    )


def _beside_the_status(job: pulse.WorkflowJob, kind: str, now: datetime) -> str:
    said, reason = brief(job, now), reason_of(job)
    match kind:
        case "WAITING":
            return said.removeprefix("waits ")
        case "PENDING":
            return said
        case "RETRYING":
            return ", ".join(filter(None, (said.removeprefix("retrying "), reason)))
        case _:
            return reason


# ---------------------------------------------------------------- table


@dataclass(frozen=True, slots=True)
class JobTable:
    workflow_id: str
    rows: tuple[WorkflowJobRow, ...]
    total: int
    """How many jobs were chosen, on all pages."""
    page: int
    pages: int
    tabs: tuple[tuple[str, str, int], ...]
    """The kind, the name and the number of each kind of jobs."""
    state: str
    """The kind of its jobs; empty: all."""
    like: str
    """The number of the box whose jobs it has; empty: all."""

    def path(self, **changes: str) -> str:
        """Return the URL of the table with some fields changed; "" removes one."""
        return jobs_path(self.workflow_id, **{"state": self.state, "like": self.like, **changes})


def jobs_path(workflow_id: str, **fields: str) -> str:
    """Return the URL of the jobs of a workflow with this query."""
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"/workflows/{workflow_id}{'?' if query else ''}{query}#jobs"


def job_table(
    workflow_id: str,
    jobs: Sequence[pulse.WorkflowJob],
    folded: Folded | None,
    asked: Mapping[str, str],
    now: datetime,
) -> JobTable:
    """Return the table that was asked for. Invalid fields are ignored."""
    counts = counted(jobs)
    chosen, state, like = jobs, "", ""
    if (box := _number(asked.get("like", ""))) and folded is not None and box in folded.members:
        members = set(folded.members[box])
        chosen = [job for job in chosen if job.number in members]
        counts = counted(chosen)
        like = str(box)
    if (kind := asked.get("state", "").upper()) in ORDER:
        chosen = [job for job in chosen if kind_of(job) == kind]
        state = kind.lower()
    pages = max(1, -(-len(chosen) // tuning.WORKFLOW_ROWS))
    page = min(max(1, _number(asked.get("page", ""))), pages)
    first = (page - 1) * tuning.WORKFLOW_ROWS
    by_number = {job.number: job for job in jobs}
    return JobTable(
        workflow_id,
        tuple(job_row(job, by_number, now) for job in chosen[first : first + tuning.WORKFLOW_ROWS]),
        len(chosen),
        page,
        pages,
        tuple((kind.lower(), NAMES[kind], number) for kind, number in counts.items()),
        state,
        like,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0


# ---------------------------------------------------------------- drawing

_SIDES = 36
"""Pixels of a box beside its texts."""
_NAME_COLUMN, _WORDS_COLUMN = 8.0, 6.0
"""The width of a character, of the usual fonts a wide one. The template clips longer texts."""
_BAR_SIDES = 16
_ARROW = 6


@dataclass(frozen=True, slots=True)
class Shape:
    number: int
    left: int
    top: int
    link: str
    style: str
    """Its class: the kind of its job, or the most urgent kind of its jobs."""
    mark: str
    name: str
    words: str
    title: str
    """All of it in a sentence."""
    parts: tuple[Part, ...]
    """The bar of a box of several jobs, in pixels."""


@dataclass(frozen=True, slots=True)
class Drawing:
    is_down: bool
    """From top to bottom, for narrow screens; else from left to right."""
    box_width: int
    box_height: int
    bar_left: int
    width: int
    height: int
    shapes: tuple[Shape, ...]
    lines: str
    conditional_lines: str
    """The ends of lines to jobs that run if one failed, or always."""
    arrows: str

    @property
    def is_folded(self) -> bool:
        return any(shape.parts for shape in self.shapes)


def draw(
    jobs: Mapping[int, pulse.WorkflowJob],
    folded: Folded,
    now: datetime,
    link: Callable[[Sequence[int]], str],
    *,
    is_down: bool = False,
) -> Drawing:
    """Return the drawing. `link` is the URL of the jobs in a box."""
    layout = lay_out(folded.parents, is_down=is_down)
    shapes = []
    for box in layout.boxes:
        numbers = folded.members[box.key]
        make = _one if len(numbers) == 1 else _several
        shapes.append(make([jobs[number] for number in numbers], box, layout.box_width, link(numbers), now))
    lines, conditional = _segments(layout.lines, jobs)
    return Drawing(
        is_down,
        layout.box_width,
        BOX_HEIGHT,
        _BAR_SIDES // 2,
        layout.width,
        layout.height,
        tuple(shapes),
        _path(lines, is_down),
        _path(conditional, is_down),
        "".join(_arrow(point, is_down) for point in dict.fromkeys(line.points[-1] for line in layout.lines)),
    )


def cut(text: str, columns: int) -> str:
    """Return the text cut to a width, in which a character of Chinese or Japanese counts twice."""
    width = 0
    for at, character in enumerate(text):
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width > columns:
            return text[: max(at - 1, 0)] + "…"
    return text


def _one(jobs: Sequence[pulse.WorkflowJob], box: Box, width: int, link: str, now: datetime) -> Shape:
    (job,) = jobs
    kind, name = kind_of(job), printable.one_line(job.name)
    on = "" if job.topic == job.name else f" on {printable.one_line(job.topic)}"
    return Shape(
        job.number,
        box.left,
        box.top,
        link,
        kind.lower(),
        MARKS[kind],
        cut(name, _columns(width, _NAME_COLUMN)),
        _words(job.when, brief(job, now), width),
        f"{name}{on}: {detail(job, now)}{_RUNS.get(job.when, '')}",
        (),
    )


def _several(jobs: Sequence[pulse.WorkflowJob], box: Box, width: int, link: str, now: datetime) -> Shape:
    counts = counted(jobs)
    said = counts_in_words(counts)
    first, worst = jobs[0], next(iter(counts))
    topic, number = printable.one_line(first.topic), count(len(jobs))
    return Shape(
        first.number,
        box.left,
        box.top,
        link,
        worst.lower(),
        MARKS[worst],
        f"{cut(topic, _columns(width, _NAME_COLUMN) - len(number) - 3)} × {number}",
        _words(first.when, said, width),
        f"{number} jobs on {topic}: {said}{_RUNS.get(first.when, '')}",
        # Done jobs first, as a bar fills up.
        bar(
            {kind.lower(): counts[kind] for kind in reversed(counts)},
            len(jobs),
            width=width - _BAR_SIDES,
            least=2,
        ),
    )


_RUNS = {"failed": " (runs if one failed)", "always": " (runs always)"}


def _words(when: str, said: str, width: int) -> str:
    """Return how a box stands, with its condition if both fit."""
    columns = _columns(width, _WORDS_COLUMN)
    condition = CONDITIONS.get(when)
    whole = f"{condition} · {said}" if condition else said
    return whole if len(whole) <= columns else cut(said, columns)


def _columns(width: int, column: float) -> int:
    return int((width - _SIDES) / column)


Segment = tuple[Point, Point]


def _segments(
    lines: Iterable[Edge], jobs: Mapping[int, pulse.WorkflowJob]
) -> tuple[list[Segment], list[Segment]]:
    """Return each segment once, apart from the last ones of lines to jobs with a condition."""
    plain: dict[Segment, None] = {}
    conditional: dict[Segment, None] = {}
    for line in lines:
        *way, last = pairwise(line.points)
        plain.update(dict.fromkeys(way))
        (conditional if jobs[line.child].when in CONDITIONS else plain)[last] = None
    return list(plain), list(conditional)


def _path(segments: Iterable[Segment], is_down: bool) -> str:
    return "".join(_curve(*segment, is_down) for segment in segments)


def _curve(start: Point, end: Point, is_down: bool) -> str:
    (x1, y1), (x2, y2) = start, end
    if x1 == x2 or y1 == y2:
        return f"M{x1} {y1}L{x2} {y2}"
    if is_down:
        middle = (y1 + y2) // 2
        return f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def _arrow(point: Point, is_down: bool) -> str:
    x, y = point
    if is_down:
        return f"M{x} {y}l-4 -{_ARROW}h8z"
    return f"M{x} {y}l-{_ARROW} -4v8z"


# ---------------------------------------------------------------- states
# The kinds of jobs on pages, and words for one job.

SKIPPED, WAITING, SUSPENDED = "SKIPPED", "WAITING", "SUSPENDED"
"""The kinds besides the statuses: not needed; waiting for other jobs; sleeping, or waiting for a signal."""

MARKS: Mapping[str, str] = {**STATUS_MARKS, SKIPPED: "»", WAITING: "◌", SUSPENDED: "☾"}
NAMES: Mapping[str, str] = {
    **STATUS_NAMES,
    SKIPPED: "Skipped",
    WAITING: "Waiting",
    SUSPENDED: "Suspended",
}
ORDER = (
    "DEAD_LETTERED",
    "RUNNING",
    "RETRYING",
    SUSPENDED,
    "PENDING",
    WAITING,
    "COMPLETED",
    "CANCELED",
    SKIPPED,
)
"""Jobs that need attention first. A box of several jobs has the color of the first kind that it has."""

CONDITIONS: Mapping[str, str] = {"failed": "if failed", "always": "always"}
"""When a job runs, in a word or two. The default is not shown."""

_OF_DELETED = {"succeeded": "COMPLETED", "failed": "DEAD_LETTERED", "skipped": SKIPPED}
_LONGEST_ERROR = 200


def kind_of(job: pulse.WorkflowJob) -> str:
    """Return the status of a job or another kind. A deleted job has the kind of its outcome."""
    if not job.status:
        return _OF_DELETED.get(str(job.outcome), "CANCELED")
    if job.status == "CANCELED":
        return SKIPPED if "skipped" in (job.state, job.outcome) else "CANCELED"
    if job.status == "PENDING" and job.state == "waiting":
        return WAITING
    if job.status == "RETRYING" and job.waits_for is not None:
        return SUSPENDED
    return str(job.status)


def detail(job: pulse.WorkflowJob, now: datetime) -> str:
    """Return how the job stands: "running for 3 s", "retrying in 4 s", "dead-lettered: ValueError"."""
    said, reason = brief(job, now), reason_of(job)
    return f"{said}: {reason}" if reason else said


def brief(job: pulse.WorkflowJob, now: datetime) -> str:
    """Return the same without the reason."""
    kind = kind_of(job)
    if kind == WAITING:
        return f"waits for {words.count(job.unended_parents)} of {words.count(len(job.parents))}"
    if kind == "PENDING":
        return "ready" if job.next_run_at is None or job.next_run_at <= now else _until("due", job, now)
    if kind == SUSPENDED:
        return what_it_waits_for(
            job.waits_for or "",
            job.next_run_at,
            now,
            lambda rest: words.ago(now + rest, now).removeprefix("in "),
        )
    if kind == "RETRYING":
        return _until("retrying", job, now)
    if kind == SKIPPED:
        return "skipped"
    said = STATUS_WORDS[kind]
    if kind == "RUNNING" and job.started_at is not None and job.started_at < now:
        since = words.ago(job.started_at, now)
        return said if since == "now" else f"{said} for {since.removesuffix(' ago')}"
    if kind == "COMPLETED" and (seconds := took(job, now)) is not None:
        return f"{said} in {words.span(seconds)}"
    return said


def reason_of(job: pulse.WorkflowJob) -> str:
    """Return why a job failed or was canceled, in a line; else ""."""
    if not job.status:
        return "deleted"
    kind = kind_of(job)
    if kind == "CANCELED" and job.state == "dropped":
        return "a job that it waited for did not succeed"
    if kind == SKIPPED:
        return "not needed"
    if kind in ("DEAD_LETTERED", "RETRYING", "CANCELED"):
        return printable.summary(job.last_error or "")[:_LONGEST_ERROR]
    return ""


def took(job: pulse.WorkflowJob, now: datetime) -> float | None:
    """Return the run time of the last attempt in seconds, also while it runs; None if it did not start."""
    if job.started_at is None or kind_of(job) not in ("RUNNING", "COMPLETED", "DEAD_LETTERED"):
        return None
    end = now if job.finished_at is None else job.finished_at
    return max(0.0, (end - job.started_at).total_seconds())


def counted(jobs: Iterable[pulse.WorkflowJob]) -> dict[str, int]:
    """Return how many jobs are of each kind, in ORDER, without zeros."""
    found = dict.fromkeys(ORDER, 0)
    for job in jobs:
        found[kind_of(job)] += 1
    return {kind: number for kind, number in found.items() if number}


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Return the counts in words: "3 dead, 877 waiting, 9,120 completed"."""
    return ", ".join(f"{words.count(number)} {NAMES[kind].lower()}" for kind, number in counts.items())


def _until(said: str, job: pulse.WorkflowJob, now: datetime) -> str:
    if job.next_run_at is None or job.next_run_at <= now:
        return f"{said} now"
    if job.next_run_at > tuning.LAST_MOMENT:
        return "waits for a signal"
    return f"{said} {words.ago(job.next_run_at, now)}"


# ---------------------------------------------------------------- bars
# Of several parts: how many of how many, by outcome or state.


@dataclass(frozen=True, slots=True)
class Part:
    style: str
    left: float
    width: float


def bar(counts: Mapping[str, int], total: int, *, width: float, least: float) -> tuple[Part, ...]:
    """Return the parts by style, from the left. `least` is the width of a small count: it stays visible."""
    widths = {style: max(least, width * number / total) for style, number in counts.items() if number}
    scale = min(1.0, width / sum(widths.values())) if widths else 1.0
    parts, left = [], 0.0
    for style, its_width in widths.items():
        parts.append(Part(style, round(left, 2), round(its_width * scale, 2)))
        left += its_width * scale
    return tuple(parts)
