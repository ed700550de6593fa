"""Writes and reads transitions in the messages between servers."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pulse_server.domain.transitions import Transition
from pulse_server.jobs.rules import JobStatus, Progress
from pulse_server.postgres import wakeup_values as values


def transition_to_text(transition: Transition) -> str:
    """The transition as JSON, without its progress: servers of the previous release read it."""
    *facts, at, _ = transition
    return _text([*facts, at.timestamp()])


def transition_from_entry(
    job_id: object,
    topic: object,
    status: object,
    attempt: object,
    worker_id: object,
    error: object,
    at: object,
) -> Transition:
    return Transition(
        values.text(job_id),
        values.text(topic),
        JobStatus(values.text(status)),
        values.whole(attempt),
        values.optional_text(worker_id),
        values.text(error),
        values.moment(at),
    )


def progress_to_text(transition: Transition) -> str:
    """The transition of a job that runs as before, with its progress."""
    job_id, topic, _, attempt, worker_id, _, at, progress = transition
    assert progress is not None
    fraction, text, _, _, reported_at, since, since_fraction = progress
    times = reported_at.timestamp(), None if since is None else since.timestamp()
    return _text([job_id, topic, attempt, worker_id, at.timestamp(), fraction, text, *times, since_fraction])


def progress_from_entry(
    job_id: object,
    topic: object,
    attempt: object,
    worker_id: object,
    at: object,
    fraction: object,
    text: object,
    reported_at: object,
    since: object,
    since_fraction: object,
) -> Transition:
    progress = Progress(
        None if fraction is None else values.fraction(fraction),
        values.text(text),
        "",
        values.whole(attempt),
        values.moment(reported_at),
        None if since is None else values.moment(since),
        values.fraction(since_fraction),
    )
    return Transition(
        values.text(job_id),
        values.text(topic),
        JobStatus.RUNNING,
        progress.attempt,
        values.optional_text(worker_id),
        "",
        values.moment(at),
        progress,
    )


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


def _text(entry: object) -> str:
    return json.dumps(entry, separators=(",", ":"))
