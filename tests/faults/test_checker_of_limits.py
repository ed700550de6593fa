"""I16 to I19: the checker finds starts beyond limits and rates, in holds, out of order; stranded lanes."""

from __future__ import annotations

import pytest

from tests.faults.made_up.flow import MadeUpFlow
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import lane_order, limits, lines, rates

# ---------------------------------------------------------------- limits


def test_starts_within_a_limit_pass(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(max_running=2)
    first = flow.start()
    flow.start()
    flow.end(first)
    flow.start()
    assert broken(run) == set()


def test_start_beyond_a_limit_is_noticed(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(max_running=1)
    flow.start()
    flow.start()
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_job_that_ran_before_the_limit_counts(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.start(counted_at=None)
    flow.limit(max_running=1)
    flow.start()
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_limit_that_is_lowered_is_broken_by_a_start_only(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(max_running=3)
    jobs = [flow.start() for _ in range(3)]
    flow.limit(max_running=1)
    for job in jobs:
        flow.end(job)
    flow.start()
    assert broken(run) == set()
    flow.start()
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_topics_of_a_pool_count_together(run: MadeUpRun, flow: MadeUpFlow) -> None:
    for topic in ("train", "render"):
        flow.limit(topic, turnstile="gpu", max_running=1)
    flow.start(topic="train", counted_at="gpu")
    flow.start(topic="render", counted_at="gpu")
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_start_that_passes_no_turnstile_is_noticed(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(max_running=5)
    flow.start(counted_at=None)
    assert broken(run) == {("I16", limits.PASSED_TURNSTILE)}


def test_topic_without_limits_is_free(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(max_running=1)
    flow.unlimit()
    flow.start(counted_at=None)
    flow.start(counted_at=None)
    assert broken(run) == set()


@pytest.mark.parametrize(("own", "is_broken"), [(None, True), (2, False), (1, True)])
def test_limit_of_a_lane_counts_for_each_of_them(
    run: MadeUpRun, flow: MadeUpFlow, own: int | None, is_broken: bool
) -> None:
    flow.limit(per_lane=1)
    flow.own_limit("a", own)
    flow.start("a")
    flow.start("b")
    for _ in range(2):
        flow.start(None)
    flow.start("a")
    assert broken(run) == ({("I16", limits.WITHIN_LANE)} if is_broken else set())


# ---------------------------------------------------------------- rates and holds


def test_starts_beyond_a_rate_are_noticed_in_any_period(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(starts=2, seconds=1.0)
    flow.start()
    run.wait(900_000)
    flow.start()
    run.wait(50_000)
    assert broken(run) == set()
    flow.start()
    assert broken(run) == {("I17", rates.WITHIN_RATE)}


def test_start_that_is_older_than_the_period_counts_no_longer(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(starts=1, seconds=1.0)
    for _ in range(3):
        flow.start()
        run.wait(1_000_000)
    assert broken(run) == set()


@pytest.mark.parametrize("again", [{"turnstile": "gpu"}, {"turnstile": "cpu"}, {}], ids=str)
def test_starts_of_a_topic_count_at_its_next_turnstile(
    run: MadeUpRun, flow: MadeUpFlow, again: dict[str, str]
) -> None:
    flow.limit(turnstile="gpu", starts=1, seconds=1.0)
    flow.start(counted_at="gpu")
    flow.limit(**again, max_running=3, seconds=1.0)
    flow.start(counted_at=again.get("turnstile", "sync"))
    assert broken(run) == set(), "there was no rate"
    flow.limit(**again, starts=1, seconds=1.0)
    flow.start(counted_at=again.get("turnstile", "sync"))
    assert broken(run) == {("I17", rates.WITHIN_RATE)}


def test_hold_of_a_topic_counts_at_its_next_turnstile(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit()
    flow.hold(1.0)
    flow.limit(turnstile="gpu", closed_until="2026-01-01T00:00:00+00:00")
    flow.limit("other", turnstile="gpu")
    flow.start(topic="other", counted_at="gpu")
    assert broken(run) == set()
    flow.start(counted_at="gpu")
    assert broken(run) == {("I17", rates.NOT_WHILE_HELD)}


def test_topic_starts_once_its_hold_or_its_limit_has_ended(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit()
    flow.hold(1.0)
    flow.limit(turnstile="gpu", closed_until="2026-01-01T00:00:00+00:00")
    flow.limit(turnstile="gpu")
    flow.start(counted_at="gpu")
    flow.hold(1.0, "gpu")
    flow.limit(retired=True)
    flow.start()
    assert broken(run) == set()


def test_starts_of_a_lane_beyond_its_rate_are_noticed(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(lane_starts=1, lane_seconds=1.0)
    flow.start("a")
    flow.start("b")
    assert broken(run) == set()
    flow.start("a")
    assert broken(run) == {("I17", rates.WITHIN_LANE_RATE)}


def test_start_in_a_hold_is_noticed(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit()
    flow.hold(1.0)
    flow.start()
    assert broken(run) == {("I17", rates.NOT_WHILE_HELD)}


def test_start_after_a_hold_passes(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit()
    flow.hold(1.0)
    run.wait(1_000_000)
    flow.start()
    assert broken(run) == set()


# ---------------------------------------------------------------- order


def test_ordered_lane_that_keeps_its_order_passes(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(per_lane=1, ordered=True)
    flow.own_limit("a", 3)
    first, second = flow.wait(), flow.wait()
    urgent = flow.wait(priority=5)
    for job in (urgent, first, second):
        flow.start("a", job=job)
        flow.end(job, "a")
    assert broken(run) == set()


def test_job_that_passes_another_is_noticed(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(per_lane=1, ordered=True)
    flow.wait()
    flow.start("a", job=flow.wait())
    assert broken(run) == {("I18", lane_order.IN_ORDER)}


def test_lanes_are_ordered_each_on_its_own(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(per_lane=1, ordered=True)
    flow.wait("a")
    flow.start("b", job=flow.wait("b"))
    assert broken(run) == set()


def test_job_that_passes_one_that_is_tried_again_is_noticed(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(per_lane=1, ordered=True)
    first, second = flow.wait(), flow.wait()
    flow.start("a", job=first)
    flow.end(first, "a", again=True)
    flow.start("a", job=second)
    assert broken(run) == {("I18", lane_order.RETRY_HOLDS)}


def test_job_that_is_canceled_before_it_is_tried_again_holds_nothing(
    run: MadeUpRun, flow: MadeUpFlow
) -> None:
    flow.limit(per_lane=1, ordered=True)
    first, second = flow.wait(), flow.wait()
    flow.start("a", job=first)
    flow.end(first, "a", again=True)
    flow.drop(first)
    flow.start("a", job=second)
    assert broken(run) == set()


def test_job_that_passes_the_second_of_two_that_are_tried_again_is_noticed(
    run: MadeUpRun, flow: MadeUpFlow
) -> None:
    """Both ran at once before order was kept. They may come back in either order, but before all others."""
    flow.limit(per_lane=2)
    first, second = flow.wait(), flow.wait()
    flow.start("a", job=first)
    flow.start("a", job=second)
    flow.limit(per_lane=1, ordered=True)
    flow.end(first, "a", again=True)
    flow.end(second, "a", again=True)
    flow.start("a", job=second)
    flow.end(second, "a")
    assert broken(run) == set()
    flow.start("a", job=flow.wait(priority=9))
    assert broken(run) == {("I18", lane_order.RETRY_HOLDS)}


def test_retry_comes_before_a_job_of_higher_priority(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(per_lane=1, ordered=True)
    first = flow.wait()
    flow.start("a", job=first)
    flow.end(first, "a", again=True)
    flow.wait(priority=9)
    flow.wait(job=first)
    flow.start("a", job=first)
    assert broken(run) == set()


@pytest.mark.parametrize("is_first", [True, False])
def test_retry_from_before_order_was_given_up_may_come_first_once_it_is_kept_again(
    run: MadeUpRun, flow: MadeUpFlow, is_first: bool
) -> None:
    flow.limit(per_lane=1, ordered=True)
    retried = flow.wait()
    flow.start("a", job=retried)
    flow.end(retried, "a", again=True)
    flow.wait(job=retried)
    flow.limit(per_lane=None)
    flow.limit(per_lane=1, ordered=True)
    urgent, usual = flow.wait(priority=9), flow.wait()
    for job in (retried, urgent) if is_first else (urgent, retried):
        flow.start("a", job=job)
        flow.end(job, "a")
    flow.start("a", job=usual)
    assert broken(run) == set()


def test_retry_from_before_order_was_given_up_passes_once_only(run: MadeUpRun, flow: MadeUpFlow) -> None:
    flow.limit(per_lane=1, ordered=True)
    retried = flow.wait()
    flow.start("a", job=retried)
    flow.end(retried, "a", again=True)
    flow.limit(per_lane=None)
    flow.limit(per_lane=1, ordered=True)
    flow.wait(priority=9)
    for _ in range(2):
        flow.wait(job=retried)
        flow.start("a", job=retried)
        flow.end(retried, "a")
    assert broken(run) == {("I18", lane_order.IN_ORDER)}


# ---------------------------------------------------------------- what was seen from outside


def test_lane_that_is_stranded_is_noticed(run: MadeUpRun) -> None:
    run.write("nemesis", "stranded", topic="sync", lane="a")
    assert broken(run) == {("I19", lines.IN_LINE)}


def test_repair_by_a_sweep_is_noticed(run: MadeUpRun) -> None:
    run.write("nemesis", "repaired", turnstiles=1, lanes=0)
    assert broken(run) == {("I19", lines.COUNTS_AGREE)}
