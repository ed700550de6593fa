"""Waits for jobs to finish, and prints how they ended."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import CancelledError
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.failures import FAILED, INTERRUPTED, Failure
from pulse_cli.output import Output, payload_text
from pulse_cli.terminal import Cell, Spinner, now, print_lines, spinner
from pulse_cli.views.jobs import state, status_cell
from pulse_cli.views.shapes import whole_job_shape
from pulse_text import printable
from pulse_text.times import format_duration

if TYPE_CHECKING:
    from pulse import JobHandle, JobInfo, SyncPulse


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
