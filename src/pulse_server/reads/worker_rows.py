"""The connected workers of a server, as its row stores them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pulse_server import tuning
from pulse_server.domain.workers import ConnectedWorker, WorkerFacts

# Topic names in the row of one server, about a megabyte. Past this, each further list of topics is
# cut to WORKER_TOPICS_SHOWN.
SERVER_ROW_TOPICS = 50_000


def workers_to_json(workers: Sequence[ConnectedWorker]) -> str:
    """A worker with the topics of an earlier one has that worker's index as `same_as`.

    Otherwise a thousand workers with a thousand topics each would be a million names, written every
    few seconds and read by every server that lists workers.
    """
    places: dict[tuple[str, ...], int] = {}
    room = SERVER_ROW_TOPICS
    entries: list[dict[str, object]] = []
    for place, worker in enumerate(workers):
        entry: dict[str, object] = {
            "worker_id": worker.worker_id,
            "topics": [],
            "capacity": worker.capacity,
            "connected_at": worker.connected_at.isoformat(),
            "facts": worker.facts,
            "concurrency": worker.concurrency,
            "run_id": worker.run_id,
            "can_stop": worker.can_stop,
        }
        if worker.hindrance:
            entry["hindrance"] = worker.hindrance
        if (same_as := places.setdefault(worker.topics, place)) != place:
            entry["same_as"] = same_as
        else:
            shown = worker.topics[: max(room, tuning.WORKER_TOPICS_SHOWN)]
            room -= len(shown)
            entry["topics"] = shown
            entry["topics_left_out"] = len(worker.topics) - len(shown) + worker.topics_left_out
        entries.append(entry)
    return json.dumps(entries)


def workers_from_json(text: str) -> tuple[ConnectedWorker, ...]:
    workers: list[ConnectedWorker] = []
    for entry in json.loads(text):
        topics, left_out = _topics(entry, workers)
        workers.append(
            ConnectedWorker(
                entry["worker_id"],
                topics,
                entry["capacity"],
                datetime.fromisoformat(entry["connected_at"]),
                left_out,
                WorkerFacts(*entry.get("facts", ())),
                entry.get("concurrency", 0),
                entry.get("hindrance", ""),
                entry.get("run_id", ""),
                entry.get("can_stop", False),
            )
        )
    return tuple(workers)


def _topics(entry: dict[str, Any], before: Sequence[ConnectedWorker]) -> tuple[tuple[str, ...], int]:
    if "same_as" in entry:
        same = before[entry["same_as"]]
        return same.topics, same.topics_left_out
    return tuple(entry["topics"]), entry.get("topics_left_out", 0)
