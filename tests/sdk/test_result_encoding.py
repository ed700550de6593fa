"""Results as the worker encodes them: byte for byte what protobuf would send."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.outcomes import SUCCEEDED, Failed, Outcome, Snoozed, Succeeded
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.reporter import encode_results

IDS = st.one_of(st.uuids().map(str), st.text(max_size=200))
ATTEMPTS = st.one_of(st.integers(1, 5), st.integers(-(2**31), 2**31 - 1))
FAILURES = st.builds(
    Failed,
    st.text(max_size=300),
    st.none() | st.timedeltas(timedelta(0), timedelta(days=3)),
    st.booleans(),
    st.booleans(),
)
SNOOZES = st.builds(Snoozed, st.timedeltas(timedelta(0), timedelta(days=3)), st.text(max_size=300))
OUTCOMES: st.SearchStrategy[Outcome] = st.just(SUCCEEDED) | FAILURES | SNOOZES


def held(job_id: str, attempt: int, outcome: Outcome) -> Any:
    context = pulse.Context()
    return SimpleNamespace(
        job_id=job_id,
        attempt=attempt,
        run=max(1, attempt - 1),
        outcome=outcome,
        context=context,
        sent_progress=None,
    )


def by_protobuf(jobs: list[Any]) -> bytes:
    request = pb.ReportResultsRequest()
    for job in jobs:
        if isinstance(job.outcome, Failed):
            failed = job.outcome
            request.results.add(
                job_id=job.job_id,
                attempt=job.attempt,
                run=job.run,
                error=failed.error,
                retry_after=failed.retry_after,
                discard=failed.discard,
                timed_out=failed.timed_out,
            )
        elif isinstance(job.outcome, Snoozed):
            snoozed = job.outcome
            request.results.add(
                job_id=job.job_id,
                attempt=job.attempt,
                run=job.run,
                error=snoozed.reason,
                snooze=snoozed.delay,
            )
        else:
            request.results.add(job_id=job.job_id, attempt=job.attempt, run=job.run, success=True)
    return request.SerializeToString()


@given(st.lists(st.builds(held, IDS, ATTEMPTS, OUTCOMES), max_size=20))
def test_results_are_encoded_as_protobuf_encodes_them(jobs: list[Any]) -> None:
    assert encode_results(jobs) == by_protobuf(jobs)


def test_delay_of_the_handlers_options_is_marked_as_such() -> None:
    """An operator's backoff wins over it, and not over a delay that the handler chose for this failure."""
    by_policy = Failed("boom", timedelta(seconds=3), retry_after_is_policy=True)
    chosen, none = Failed("boom", timedelta(seconds=3)), Failed("boom", retry_after_is_policy=True)
    jobs = [held("j", 1, outcome) for outcome in (by_policy, chosen, none)]

    read = pb.ReportResultsRequest.FromString(encode_results(jobs))

    assert [result.retry_after_is_policy for result in read.results] == [True, False, False]


def test_failures_keep_their_places_among_successes() -> None:
    """The server names those it refuses by their index."""
    outcomes: list[Outcome] = [SUCCEEDED, Failed("boom"), SUCCEEDED, Failed("x" * 5000), SUCCEEDED]
    jobs = [held(f"job-{number}", 1, outcome) for number, outcome in enumerate(outcomes)]

    read = pb.ReportResultsRequest.FromString(encode_results(jobs))

    assert [result.job_id for result in read.results] == [job.job_id for job in jobs]
    assert [result.success for result in read.results] == [True, False, True, False, True]


def test_what_handlers_returned_is_named_by_the_place_of_its_result() -> None:
    """An empty result is not the same as none."""
    outcomes: list[Outcome] = [SUCCEEDED, Succeeded(b"[1]"), Failed("boom"), Succeeded(b""), SUCCEEDED]
    jobs = [held(f"job-{number}", 200, outcome) for number, outcome in enumerate(outcomes)]

    read = pb.ReportResultsRequest.FromString(encode_results(jobs))

    assert [result.success for result in read.results] == [True, True, False, True, True]
    assert dict(read.returned) == {1: b"[1]", 3: b""}
