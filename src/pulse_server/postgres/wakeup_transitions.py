"""Writes and reads transitions in the messages between servers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from pulse_server.domain.progress import Progress
from pulse_server.domain.status import JobStatus
from pulse_server.domain.transitions import Transition


def transition_to_text(transition: Transition) -> str:
    """The transition as JSON, without its progress: servers of the previous release read it."""
    *facts, at, _ = transition
    return _text([*facts, at.timestamp()])


def transition_from_entry(
    job_id: str, topic: str, status: str, attempt: int, worker_id: str | None, error: str, at: float
) -> Transition:
    return Transition(job_id, topic, JobStatus(status), attempt, worker_id, error, _moment(at))


def progress_to_text(transition: Transition) -> str:
    """The transition of a job that runs as before, with its progress."""
    job_id, topic, _, attempt, worker_id, _, at, progress = transition
    assert progress is not None
    fraction, text, _, _, reported_at, since, since_fraction = progress
    times = reported_at.timestamp(), None if since is None else since.timestamp()
    return _text([job_id, topic, attempt, worker_id, at.timestamp(), fraction, text, *times, since_fraction])


def progress_from_entry(
    job_id: str,
    topic: str,
    attempt: int,
    worker_id: str | None,
    at: float,
    fraction: float | None,
    text: str,
    reported_at: float,
    since: float | None,
    since_fraction: float,
) -> Transition:
    began = None if since is None else _moment(since)
    progress = Progress(fraction, text, "", attempt, _moment(reported_at), began, since_fraction)
    return Transition(job_id, topic, JobStatus.RUNNING, attempt, worker_id, "", _moment(at), progress)


def in_parts(texts: Iterable[str], most_bytes: int) -> list[list[str]]:
    """The texts in parts, as many per part as fit."""
    parts: list[list[str]] = [[]]
    size = 0
    for text in texts:
        size += len(text) + 1
        if size > most_bytes:
            parts.append([])
            size = len(text) + 1
        parts[-1].append(text)
    return parts


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _text(entry: object) -> str:
    return json.dumps(entry, separators=(",", ":"))
