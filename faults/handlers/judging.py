"""What went wrong in a run: jobs that ended otherwise than promised, and runs at the same time."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import pulse
from faults.handlers.kinds import KINDS
from tests.system.journal import Execution

# By the id of a worker: "host-PID-random".
_PID = re.compile(r"-(\d+)-[0-9a-f]+$")
# A child that a run kills may have had an attempt in hand.
# The server's word for an attempt whose worker does not report it.
_ENDED_BY_SERVER = "time limit exceeded"
_CHILD_KILLED = "The process of this attempt was killed by SIGKILL"


def judge_job(job: pulse.JobInfo, crashed: Collection[int]) -> list[str]:
    """Compare the end of a job, and each of its failed attempts, with what its kind promises."""
    kind = KINDS[job.topic]
    what = f"job {job.id} ({job.topic})"
    found = []
    if job.status not in kind.ends:
        found.append(f"{what} is {job.status}, not {' or '.join(kind.ends)}: {_short(job.last_error)}")
    for attempt in job.history:
        if attempt.outcome == "canceled" and pulse.JobStatus.CANCELED in kind.ends:
            continue
        if attempt.outcome == "lease_expired" or attempt.error == _ENDED_BY_SERVER:
            if kind.is_stuck or _pid_of(attempt.worker_id) in crashed:
                continue
        elif (kind.errors and re.search(kind.errors, attempt.error)) or (
            kind.is_process and _CHILD_KILLED in attempt.error
        ):
            continue
        found.append(
            f"{what} {attempt.outcome} on attempt {attempt.attempt} at {attempt.worker_id}: "
            f"{_short(attempt.error)}"
        )
    return found


def judge_runs(entries: Iterable[Execution], jobs: Mapping[str, pulse.JobInfo]) -> list[str]:
    """Check that no job ran twice at the same time, and none that ended ran again without a reason."""
    runs: dict[str, list[Execution]] = defaultdict(list)
    for entry in entries:
        runs[entry.job_id].append(entry)
    found = []
    for job_id, job in jobs.items():
        kind = KINDS[job.topic]
        starts = [entry for entry in runs[job_id] if entry.event == "start"]
        if job.status is pulse.JobStatus.COMPLETED and not starts:
            found.append(f"job {job_id} ({job.topic}) is COMPLETED and never ran")
        if kind.is_stuck:
            continue  # its handler may go on beside the next attempt
        ended_at = {entry.facts["run"]: entry.at for entry in runs[job_id] if entry.event != "start"}
        for former, latter in itertools.pairwise(starts):
            if former.facts["run"] >= latter.facts["run"]:
                found.append(f"job {job_id} ({job.topic}) started run {latter.facts['run']} again")
            if ended_at.get(former.facts["run"], 0.0) > latter.at:
                found.append(f"job {job_id} ({job.topic}) ran twice at the same time")
        ends = [entry for entry in runs[job_id] if entry.event == "end"]
        if len(ends) > 1 + len(job.history):
            found.append(f"job {job_id} ({job.topic}) ended {len(ends)} times")
    return found


def _pid_of(worker_id: str) -> int | None:
    match = _PID.search(worker_id)
    return int(match[1]) if match else None


def _short(text: str | None) -> str:
    return repr((text or "")[:300])
