"""Reports: which count, which are repeats, which are too late."""

from __future__ import annotations

import logging

import pytest

from pulse_server.base.bounds import error_group
from pulse_server.base.errors import InvalidTransition, JobNotFound, Unavailable
from pulse_server.base.ids import new_id
from pulse_server.jobs.reports import ResultReport
from pulse_server.jobs.rules import Claim, JobStatus
from pulse_server.work.attempts import Reports
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job, failure, success


def reports_of(replica: StoredReplica) -> Reports:
    return Reports(replica.repo, replica.publisher)


async def test_success_completes_and_failure_retries(replica: StoredReplica) -> None:
    await replica.store.submit(a_job(), a_job())
    first, second = await replica.store.claim(count=2)

    assert await reports_of(replica).report([failure(first), success(second)]) == [
        None,
        None,
    ]
    assert await replica.store.status(first.job_id) is JobStatus.RETRYING
    assert await replica.store.status(second.job_id) is JobStatus.COMPLETED


async def test_dead_letter_is_put_to_those_that_died_alike(replica: StoredReplica) -> None:
    await replica.store.submit(*[a_job(max_attempts=1) for _ in range(3)])
    first, second, third = await replica.store.claim(count=3)

    await reports_of(replica).report(
        [failure(first, "KeyError: 'a'"), failure(second, "KeyError: 'b'"), failure(third, "OSError")]
    )

    groups = [(await replica.store.job(claim.job_id)).error_group for claim in (first, second, third)]
    assert groups == [error_group("KeyError: 'c'")] * 2 + [error_group("OSError")]


async def test_results_that_all_count_need_no_look_up(replica: StoredReplica) -> None:
    claim = await replica.store.start()
    replica.repo.calls.clear()

    await reports_of(replica).report([success(claim)])

    assert replica.repo.calls == ["complete_jobs"]


@pytest.mark.parametrize("result", [success, failure])
async def test_repeat_of_a_report_counts(replica: StoredReplica, result: object) -> None:
    reports = reports_of(replica)
    claim = await replica.store.start()
    report = result(claim)  # type: ignore[operator]
    await reports.report([report])
    before = await replica.store.job(claim.job_id)

    assert await reports.report([report]) == [None]
    assert await replica.store.job(claim.job_id) == before


@pytest.mark.parametrize("result", [success, failure])
async def test_same_report_twice_in_one_batch_counts_twice(replica: StoredReplica, result: object) -> None:
    claim = await replica.store.start()
    report = result(claim)  # type: ignore[operator]

    assert await reports_of(replica).report([report, report]) == [None, None]


async def test_first_of_two_results_of_one_claim_in_a_batch_is_stored(replica: StoredReplica) -> None:
    claim = await replica.store.start()
    one, other = ResultReport(claim, b"1"), ResultReport(claim, b"2")

    assert await reports_of(replica).report([one, other, success(claim)]) == [None, None, None]

    assert (await replica.store.job(claim.job_id)).result == b"1"


async def test_same_failure_twice_in_one_batch_is_one_in_the_metrics(replica: StoredReplica) -> None:
    report = failure(await replica.store.start(), discard=True)

    await reports_of(replica).report([report, report])

    assert replica.metrics.failed.values == {("email", "discarded"): 1}
    assert replica.metrics.dead_lettered.values == {("email",): 1}


async def test_dead_letter_is_logged_without_its_error(
    replica: StoredReplica, caplog: pytest.LogCaptureFixture
) -> None:
    claim = await replica.store.start()

    with caplog.at_level(logging.DEBUG):
        await reports_of(replica).report([failure(claim, "card 4711 was refused", discard=True)])

    (record,) = caplog.records
    assert record.message == "job_dead_lettered"
    assert (record.job_id, record.worker_id, record.attempt) == claim[:3]  # type: ignore[attr-defined]
    assert "4711" not in str(vars(record))


async def test_discard_that_is_repeated_counts(replica: StoredReplica) -> None:
    reports = reports_of(replica)
    claim = await replica.store.start()

    for _ in range(2):
        assert await reports.report([failure(claim, discard=True)]) == [None]


async def test_other_outcome_for_a_reported_attempt_is_refused(replica: StoredReplica) -> None:
    reports = reports_of(replica)
    completed, failed = await replica.store.start(), await replica.store.start()
    await reports.report([success(completed), failure(failed)])

    answers = await reports.report([failure(completed), success(failed)])

    assert [type(answer) for answer in answers] == [InvalidTransition, InvalidTransition]


async def test_contradiction_in_one_batch_is_settled_once(replica: StoredReplica) -> None:
    claim = await replica.store.start()

    answers = await reports_of(replica).report([failure(claim), success(claim)])

    assert answers[1] is None
    assert isinstance(answers[0], InvalidTransition)
    assert await replica.store.status(claim.job_id) is JobStatus.COMPLETED


async def test_unknown_job_is_not_found(replica: StoredReplica) -> None:
    claim = Claim(new_id(), "A", 1, 1)

    (answer,) = await reports_of(replica).report([success(claim)])

    assert isinstance(answer, JobNotFound)
    assert answer.job_id == claim.job_id


async def test_answer_to_a_zombie_names_the_running_attempt(replica: StoredReplica) -> None:
    zombie = await replica.store.start("A")
    await replica.store.time.lapse_leases(zombie.job_id)
    await replica.repo.reap_expired(1)
    await replica.store.claim_again(zombie.job_id, "B")

    (answer,) = await reports_of(replica).report([success(zombie)])

    assert isinstance(answer, InvalidTransition)
    assert "attempt 2" in str(answer)


async def test_mixture_is_answered_in_order(replica: StoredReplica) -> None:
    reports = reports_of(replica)
    repeated, held, canceled = [await replica.store.start() for _ in range(3)]
    await reports.report([success(repeated)])
    await replica.repo.cancel_jobs([canceled.job_id], "")

    answers = await reports.report(
        [success(canceled), success(repeated), failure(held), success(Claim(new_id(), "A", 1, 1))]
    )

    assert isinstance(answers[0], InvalidTransition)
    assert "CANCELED" in str(answers[0])
    assert answers[1:3] == [None, None]
    assert isinstance(answers[3], JobNotFound)


async def test_original_contract_may_report_by_job_alone_and_repeat_it(replica: StoredReplica) -> None:
    claim = await replica.store.start()
    bare = Claim(claim.job_id, None, None)

    for _ in range(2):
        assert await reports_of(replica).report([success(bare)]) == [None]


async def test_outage_is_raised(replica: StoredReplica) -> None:
    claim = await replica.store.start()
    replica.repo.is_away = True

    with pytest.raises(Unavailable):
        await reports_of(replica).report([success(claim)])


async def test_large_report_goes_out_in_batches_and_is_answered_in_order(
    replica: StoredReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.work.attempts.REPORT_BATCH", 2)
    await replica.store.submit(*[a_job() for _ in range(5)])
    claims = await replica.store.claim(count=5)
    await replica.repo.cancel_jobs([claims[3].job_id], "")
    replica.repo.calls.clear()

    answers = await reports_of(replica).report([success(claim) for claim in claims])

    assert [answer is None for answer in answers] == [True, True, True, False, True]
    assert replica.repo.calls.count("complete_jobs") == 3
