"""What takes several calls, until it is done or interrupted: to wait, watch, tail and export."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple, Self, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.failures import FAILED, INTERRUPTED, Failure, Misuse
from pulse_cli.jobs.views import (
    TRANSITION_FIELDS,
    describe_job,
    gap_shape,
    job_shape_with_steps,
    state,
    status_cell,
    transition_lines,
    transition_shape,
    whole_job_shape,
)
from pulse_cli.output import Output, Shape, View, payload_text, plain, table
from pulse_cli.terminal import (
    QUIET,
    Cell,
    Line,
    Spinner,
    hint,
    make_console,
    now,
    print_lines,
    spinner,
    styled,
    table_width,
)
from pulse_text import printable
from pulse_text.times import format_duration, iso

if TYPE_CHECKING:
    from pulse import (
        AuditEntry,
        Explanation,
        ExportedJobs,
        JobHandle,
        JobInfo,
        StepInfo,
        SyncPulse,
        Transitions,
        WorkflowInfo,
        WorkflowJob,
    )


T = TypeVar("T")


# ---------------------------------------------------------------- wait


class ChangeSignal:
    """Signals that one of the jobs may have changed. Best effort: the signal may be late or never come.

    An earlier server has no watch, and not every user may use it: then only the polling below remains.
    A thread watches; it ends with the client.
    """

    def __init__(
        self,
        client: SyncPulse,
        job_ids: Sequence[str],
        topics: Sequence[str] = (),
        *,
        progress: bool = False,
    ) -> None:
        self._client = client
        self._progress = progress
        self._job_ids = job_ids if len(job_ids) <= tuning.LARGEST_WATCH else ()
        self._topics = topics if not self._job_ids else ()
        self._changed = threading.Event()
        threading.Thread(target=self._watch, name="pulse-watch", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait for a change, at most this long. Returns whether there was one."""
        has_changed = self._changed.wait(seconds)
        self._changed.clear()
        return has_changed

    def _watch(self) -> None:
        import pulse

        try:
            for _ in self._client.watch(topics=self._topics, job_ids=self._job_ids, progress=self._progress):
                self._changed.set()
        except (pulse.PulseError, CancelledError):
            pass


def wait_for_jobs(
    client: SyncPulse,
    handles: Sequence[JobHandle],
    longest: timedelta | None,
    output: Output,
    *,
    is_array: bool,
) -> None:
    """Wait until all have finished and print the results. Raises a Failure unless all completed."""
    started = time.monotonic()
    ids = [handle.id for handle in handles]
    topics = sorted({handle.topic for handle in handles})
    finished: dict[str, JobInfo] = {}
    try:
        with spinner() as progress:
            no_worker = _wait(client, ids.copy(), topics, finished, longest, progress)
    except KeyboardInterrupt:
        left = [job_id for job_id in ids if job_id not in finished]
        raise Failure(_still_running("interrupted", left), INTERRUPTED) from None
    jobs = [finished[job_id] for job_id in ids if job_id in finished]
    if is_array:
        _print_many(jobs, started, output)
    elif jobs:
        _print_one(jobs[0], started, output)
    if left := [job_id for job_id in ids if job_id not in finished]:
        assert longest is not None
        raise Failure(_still_running(f"not finished after {format_duration(longest)}", left, no_worker))
    if any(str(job.status) != "COMPLETED" for job in jobs):
        raise Failure("", FAILED)  # the result has been printed


def _wait(
    client: SyncPulse,
    left: list[str],
    topics: Sequence[str],
    finished: dict[str, JobInfo],
    longest: timedelta | None,
    progress: Spinner,
) -> str | None:
    """Wait until all have finished, or the time is up. Returns a sentence if no worker takes the next one."""
    total, started = len(left), time.monotonic()
    pause = tuning.WAIT_FIRST_SECONDS
    signal = ChangeSignal(client, left.copy(), topics)
    while True:
        job = None
        for job_id in list(left):
            job = client.get_job(job_id)
            if not job.status.is_finished:
                break  # the first unfinished one: those after it are fetched when it is done
            finished[job_id] = job
            left.remove(job_id)
        if not left or job is None:
            return None
        remaining = float("inf") if longest is None else longest.total_seconds() - time.monotonic() + started
        if remaining <= 0:
            return job.no_worker
        status = f"{job.status} · attempt {job.attempts} of {job.max_attempts} · {state(job, now())}"
        if job.no_worker is not None:
            status = f"{job.status} · {printable.one_line(job.no_worker)}"
        progress.update(f"{total - len(left)} of {total} finished · {status}" if total > 1 else status)
        signal.wait(min(pause, remaining))
        pause = min(pause * 1.5, tuning.WAIT_LONGEST_SECONDS)


def _print_one(job: JobInfo, started: float, output: Output) -> None:
    if output.form == "json":
        output.show_shape(whole_job_shape(job))
        return
    if output.form == "plain":
        click.echo(f"{job.id}\t{job.status}")
        return
    waited = format_duration(timedelta(seconds=time.monotonic() - started))
    attempts = f"{job.attempts} attempt" + ("" if job.attempts == 1 else "s")
    line = [status_cell(job.status), Cell(f" after {waited}, {attempts}")]
    if str(job.status) != "COMPLETED" and job.last_error:
        line.append(Cell(f": {printable.summary(job.last_error)}"))
    print_lines([line])
    if job.result_bytes is not None:
        click.echo(payload_text(job.result_bytes))


def _print_many(jobs: Sequence[JobInfo], started: float, output: Output) -> None:
    if output.form == "json":
        output.show_shape([whole_job_shape(job) for job in jobs])
    elif output.form == "plain":
        for job in jobs:
            click.echo(f"{job.id}\t{job.status}")
    else:
        waited = format_duration(timedelta(seconds=time.monotonic() - started))
        counts = Counter(str(job.status) for job in jobs)
        summary = ", ".join(f"{count} {status}" for status, count in counts.items())
        click.echo(f"{summary} after {waited}")


def _still_running(what: str, left: Sequence[str], no_worker: str | None = None) -> str:
    why = f" {printable.one_line(no_worker)}" if no_worker else ""
    if len(left) == 1:
        return f"{what}.{why} The job continues. See: pulse jobs get {left[0]}"
    return f"{what}.{why} {len(left)} jobs continue. See: pulse jobs list"


# ---------------------------------------------------------------- watch


def watch_list(
    fetch: Callable[[], Sequence[T]],
    view: Callable[[], View[T]],
    empty: str,
    output: Output,
    interval: timedelta,
) -> None:
    """Show the result of `fetch` until Ctrl-C. An unavailable server is retried."""
    if output.is_for_people and sys.stdout.isatty():
        _watch_in_place(fetch, view, empty, interval)
    while True:
        output.show_list(fetch(), view(), empty)
        if output.form != "json":
            click.echo()
        time.sleep(interval.total_seconds())


def watch_job(client: SyncPulse, job_id: str, output: Output) -> None:
    """Show a job whenever it has changed, until it has finished. An unavailable server is retried."""
    signal = ChangeSignal(client, [job_id], progress=True)
    if output.is_for_people and sys.stdout.isatty():
        return _watch_job_in_place(client, job_id, signal)
    shown: object = None
    while True:
        details = job_details(client, job_id)
        job = details.job
        # The lease moves with each heartbeat.
        state = replace(job, lease_until=None), [parent.outcome for parent in details.parents]
        if state != shown:
            output.show_one(job_shape_with_steps(job, details.steps), partial(describe_job, *details))
            if output.form != "json":
                click.echo()
            shown = state
        if job.status.is_finished:
            return None
        signal.wait(tuning.WAIT_LONGEST_SECONDS)


def _watch_job_in_place(client: SyncPulse, job_id: str, signal: ChangeSignal) -> None:
    from rich.console import Group
    from rich.live import Live

    import pulse

    console = make_console()
    shown: list[Line] = []
    is_over = False
    with Live(console=console, auto_refresh=False) as live:
        while not is_over:
            footer = Cell("Ctrl-C ends it; the job continues", QUIET)
            try:
                details = job_details(client, job_id)
                is_over = details.job.status.is_finished
                shown = list(describe_job(*details))
            except pulse.Unavailable as error:
                footer = Cell(error.message, "red")
            lines = shown if is_over else [*shown[: max(console.height - 2, 1)], [footer]]
            live.update(Group(*map(styled, lines)), refresh=True)
            if not is_over:
                signal.wait(tuning.WAIT_LONGEST_SECONDS)


def _watch_in_place(
    fetch: Callable[[], Sequence[T]], view: Callable[[], View[T]], empty: str, interval: timedelta
) -> None:
    from rich.console import Group
    from rich.live import Live

    import pulse

    console = make_console()
    shown: list[Line] = []
    trouble = ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                things = fetch()
                shown = table(things, view()) if things else [[Cell(empty)]]
                trouble = ""
            except pulse.Unavailable as error:
                trouble = error.message
            height = max(console.height - 3, 1)
            lines = shown[:height]
            if len(shown) > height:
                lines.append([Cell(f"… and {len(shown) - height} more", QUIET)])
            footer = f"every {interval.total_seconds():g}s, Ctrl-C ends it"
            lines.append([Cell(trouble, "red")] if trouble else [Cell(footer, QUIET)])
            live.update(Group(*map(styled, lines)), refresh=True)
            time.sleep(interval.total_seconds())


# ---------------------------------------------------------------- details


class JobDetails(NamedTuple):
    """A job and what belongs to it, in the order in which `describe_job` takes it."""

    job: JobInfo
    steps: Sequence[StepInfo]
    workflow: WorkflowInfo | None
    parents: Sequence[WorkflowJob]
    """While it waits for other jobs: all jobs that it waits for, ended or not."""
    why: Explanation | None
    """While it is unfinished. None: the server is older, or the user may not ask."""
    canceled: AuditEntry | None = None
    """Of a canceled job: by which user and why. None: the server did it, or the user may not see it."""


def job_details(client: SyncPulse, job_id: str) -> JobDetails:
    """Return the job with its steps, workflow and parents, why it does not run, and its cancel."""
    import pulse

    job = client.get_job(job_id)
    steps = client.steps(job.id) if job.steps else []
    workflow, parents = None, []
    if job.workflow_id is not None:
        with suppress(pulse.NotFound):  # deleted meanwhile
            workflow = client.workflows.get(job.workflow_id)
            parents = list(client.workflows.iter_jobs(parents_of=job.id)) if job.waits_for_jobs else []
    why = explained(client, [job]).get(job.id)
    return JobDetails(job, steps, workflow, parents, why, _cancel_of(client, job))


def explained(
    client: SyncPulse, jobs: Iterable[JobInfo], warn: Callable[[str], None] = lambda _: None
) -> dict[str, Explanation]:
    """Return why the unfinished jobs do not run, by job: of the first 1,000.

    Empty if the server is older, or if the user may not ask. After any other error it has those until
    then, and `warn` is given a sentence: a list without reasons is better than none.
    """
    import pulse

    unfinished = [job.id for job in jobs if not job.status.is_finished][: tuning.MOST_EXPLAINED]
    found: dict[str, Explanation] = {}
    try:
        for begin in range(0, len(unfinished), tuning.EXPLAINED_AT_ONCE):
            ids = unfinished[begin : begin + tuning.EXPLAINED_AT_ONCE]
            found |= {why.job_id or "": why for why in client.explain_jobs(ids)}
    except (pulse.PermissionDenied, pulse.NotFound):
        return found
    except pulse.PulseError as error:
        if type(error) is not pulse.PulseError:  # an older server does not know the call
            warn(f"pulse: warning: why jobs wait cannot be shown: {error.message}")
    return found


def _cancel_of(client: SyncPulse, job: JobInfo) -> AuditEntry | None:
    import pulse

    if str(job.status) != "CANCELED":
        return None
    try:
        entries = client.audit(id=job.id)
    except pulse.PermissionDenied:
        return None
    except pulse.PulseError as error:
        if type(error) is not pulse.PulseError:  # an older server does not know the call
            raise
        return None
    return next((entry for entry in entries if entry.method.startswith("Cancel")), None)


# ---------------------------------------------------------------- tail


def follow(
    client: SyncPulse, ids: Sequence[str], topics: Sequence[str], statuses: Collection[str], output: Output
) -> None:
    """Print transitions until Ctrl-C, or until the reader of the output is gone."""
    which = _words(ids, topics, statuses)
    try:
        # Close it here: the garbage collector could close it after the client whose thread it needs.
        stream = client.watch(topics=topics, job_ids=ids)
        try:
            for number, news in enumerate(stream):
                if number == 0:
                    hint(f"Following {which}. Ctrl-C ends it.")
                    for job_id in ids:
                        _hint_status(client, job_id)
                _print(news, statuses, output)
        finally:
            stream.close()
    except KeyboardInterrupt:
        raise Failure("", INTERRUPTED) from None


def _print(news: Transitions, statuses: Collection[str], output: Output) -> None:
    if news.missed or news.interrupted:
        _print_gap(news, output)
    changes = [change for change in news.transitions if not statuses or str(change.status) in statuses]
    if not changes:
        return
    if output.is_for_people:
        print_lines(transition_lines(changes, table_width()))
        return
    shapes = map(transition_shape, changes)
    if output.form == "json":
        lines = [_json(shape) for shape in shapes]
    else:
        lines = ["\t".join(plain(shape[name]) for name in TRANSITION_FIELDS) for shape in shapes]
    click.echo("\n".join(lines))


def _print_gap(news: Transitions, output: Output) -> None:
    if output.form == "json":
        click.echo(_json(gap_shape(news)))
        return
    if news.interrupted:
        hint("The connection was lost and is back. Transitions in between were missed.")
    if news.missed:
        hint(f"{news.missed:,} more transitions, of any jobs, were dropped: they came too fast.")


def _hint_status(client: SyncPulse, job_id: str) -> None:
    job = client.get_job(job_id)
    hint(f"{job.id} on {job.topic} is {job.status}: {state(job, now()) or 'finished'}")


def _words(ids: Sequence[str], topics: Sequence[str], statuses: Collection[str]) -> str:
    which = "all jobs" if not ids else "1 job" if len(ids) == 1 else f"{len(ids)} jobs"
    on = f" on {', '.join(topics)}" if topics else ""
    to = f", when they become {' or '.join(statuses)}" if statuses else ""
    return which + on + to


def _json(shape: Shape) -> str:
    return printable.in_json(json.dumps(shape, ensure_ascii=False))


# ---------------------------------------------------------------- export


class Export:
    """The file, or standard output, that jobs are exported to."""

    def __init__(self, path: Path | None, *, is_continued: bool) -> None:
        self._path = path
        self._is_continued = is_continued
        self._resources = ExitStack()
        self._out: IO[str] = sys.stdout
        self._cursor: str | None = None
        self._count = 0
        self._is_done = False

    def __enter__(self) -> Self:
        if self._path is not None:
            self._out = self._resources.enter_context(_opened(self._path, self._is_continued))
        return self

    def write(self, pages: Iterable[ExportedJobs]) -> None:
        """Write all pages. A page counts once it is written whole."""
        for page in pages:
            # In ASCII: a payload may have characters that no file can hold, and JSON has an escape for each.
            shapes = (job_shape_with_steps(job, page.steps.get(job.id, ())) for job in page)
            lines = [json.dumps(shape, separators=(",", ":")) + "\n" for shape in shapes]
            self._out.write("".join(lines))
            self._out.flush()
            self._count += len(page)
            self._cursor = page.next_cursor
            if page.next_cursor is None:
                self._is_done = True
                before = f" that finished before {iso(page.before)}" if page.before else ""
                hint(f"{self._count:,} jobs{before} were exported.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()
        if self._is_done:
            return
        if self._cursor is not None:
            hint(
                f"The export ended early, after {self._count:,} jobs. "
                f"Continue with the same options and --after {self._cursor}"
            )
        elif self._path is not None and not self._is_continued:
            self._path.unlink(missing_ok=True)  # nothing was written, and the next try needs the name


def _opened(path: Path, is_continued: bool) -> IO[str]:
    try:
        return path.open("a" if is_continued else "x", encoding="ascii", newline="\n")
    except FileExistsError:
        raise Misuse(
            f"{path} exists already. Give another --file, or --after CURSOR to continue an export in it."
        ) from None
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from None
