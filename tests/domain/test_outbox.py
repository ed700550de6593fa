"""The outbox of a worker: jobs leave in order, in messages of bounded size."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pulse_server.dispatch import workers
from pulse_server.dispatch.workers import NOTHING, Outbox, WaitingBatch
from pulse_server.jobs.rules import STEP_OVERHEAD_BYTES, Claim, ClaimedJob, Step, StepKind
from tests.dispatch.fake_claims import claimed


def jobs(*sizes: int, prefix: str = "job") -> list[ClaimedJob]:
    return [
        claimed(f"{prefix}-{place}", "w1")._replace(payload=bytes(size)) for place, size in enumerate(sizes)
    ]


def ids(batch: WaitingBatch) -> list[str]:
    return [job.id for job in batch.jobs]


def test_batch_that_fits_leaves_as_it_came() -> None:
    waiting = Outbox()
    claim = jobs(10, 20, 30)
    waiting.add(claim, 1.0)

    taken = waiting.take(1000)

    assert taken.jobs is claim
    assert (taken.claimed_at, taken.payload_bytes) == (1.0, 60)
    assert waiting.take(1000) is NOTHING


def test_batches_share_a_message_in_the_order_of_their_assignment() -> None:
    waiting = Outbox()
    waiting.add(jobs(1, 1, prefix="first"), 2.0)
    waiting.add(jobs(1, 1, prefix="second"), 1.0)

    taken = waiting.take(3)

    assert ids(taken) == ["first-0", "first-1", "second-0"]
    assert (taken.claimed_at, taken.payload_bytes) == (1.0, 3)
    assert ids(waiting.take(3)) == ["second-1"]
    assert not waiting


def test_message_ends_once_it_has_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STREAM_MESSAGE_BYTES", 100)
    waiting = Outbox()
    waiting.add(jobs(60, 60, 10, 500, 1), 1.0)

    assert [ids(waiting.take(1000)) for _ in range(2)] == [["job-0", "job-1"], ["job-2", "job-3"]]
    assert ids(waiting.take(1000)) == ["job-4"]
    assert not waiting


def test_metadata_counts_as_bytes_of_a_message_and_not_as_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STREAM_MESSAGE_BYTES", 100)
    waiting = Outbox()
    heavy = [job._replace(metadata={"é": "x" * 98}) for job in jobs(1, 1)]
    batch = waiting.add(heavy, 1.0)

    assert (batch.payload_bytes, batch.weight) == (2, 202)
    assert ids(waiting.take(1000)) == ["job-0"]


def test_steps_count_as_bytes_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STREAM_MESSAGE_BYTES", 100)
    waiting = Outbox()
    now = datetime.now(UTC)
    step = Step("a", StepKind.STEP, 1, now, now, None, None, b"x" * 99, 99)
    batch = waiting.add([job._replace(steps=[step]) for job in jobs(1, 1)], 1.0)

    assert (batch.payload_bytes, batch.weight) == (2, 2 + 2 * (STEP_OVERHEAD_BYTES + 100))
    assert ids(waiting.take(1000)) == ["job-0"]


def test_stopped_claim_leaves_the_others_in_line() -> None:
    waiting = Outbox()
    waiting.add(jobs(1, 1, 1), 1.0)

    assert waiting.remove_claim(Claim("job-1", "w1", 2, 2)) == []
    assert [job.id for job in waiting.remove_claim(Claim("job-1", "w1", 1, 1))] == ["job-1"]
    assert ids(waiting.take(1000)) == ["job-0", "job-2"]


def test_batch_that_was_emptied_is_gone() -> None:
    waiting = Outbox()
    waiting.add(jobs(1, prefix="first"), 1.0)
    waiting.add(jobs(1, prefix="second"), 2.0)

    waiting.remove(lambda job: job.id == "first-0")

    assert waiting.take(1000).claimed_at == 2.0
    assert not waiting
