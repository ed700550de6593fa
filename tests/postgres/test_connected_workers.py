"""The workers of a server as they stand in its row."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pulse_server.base import tuning
from pulse_server.dispatch.rules import ConnectedWorker, WorkerFacts
from pulse_server.views.servers import workers_from_json, workers_to_json

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
THOUSAND = tuple(f"topic-{number}" for number in range(1000))


def worker(number: int, topics: tuple[str, ...]) -> ConnectedWorker:
    return ConnectedWorker(f"w{number}", topics, 5, NOON)


def test_workers_are_read_as_they_were_written() -> None:
    facts = WorkerFacts("host-1", "0.1.0", 1 << 30, "exited with code 1")
    workers = (
        worker(1, ("a", "b")),
        worker(2, ("b",))._replace(concurrency=3, hindrance="frozen"),
        worker(3, ("a", "b"))._replace(facts=facts),
    )

    assert workers_from_json(workers_to_json(workers)) == workers


def test_topics_that_workers_share_are_written_once() -> None:
    text = workers_to_json([worker(number, THOUSAND) for number in range(1000)])
    read = workers_from_json(text)

    assert text.count("topic-999") == 1
    assert {id(worker.topics) for worker in read} == {id(read[0].topics)}
    assert read[999].topics == THOUSAND


def test_names_in_a_row_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.views.servers.SERVER_ROW_TOPICS", 1500)
    text = workers_to_json([worker(number, (*THOUSAND, str(number))) for number in range(10)])
    read = workers_from_json(text)

    assert sum(len(worker.topics) for worker in read) <= 1500 + 9 * tuning.WORKER_TOPICS_SHOWN
    assert {len(worker.topics) + worker.topics_left_out for worker in read} == {1001}


def test_row_of_an_older_server_is_understood() -> None:
    text = '[{"worker_id":"w1","topics":["a"],"capacity":5,"connected_at":"2030-01-01T12:00:00+00:00"}]'

    assert workers_from_json(text) == (worker(1, ("a",)),)
