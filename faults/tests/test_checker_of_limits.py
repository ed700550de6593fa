"""I16 to I19: the checker finds starts beyond limits and rates, in holds, out of order; stranded lanes."""

from __future__ import annotations

import pytest

from faults.rules import lane_order, limits, lines, rates
from faults.tests.made_up.limits import MadeUpLimits
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken

# ---------------------------------------------------------------- limits


def test_starts_within_a_limit_pass(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(limit=2)
    first = made_up.start()
    made_up.start()
    made_up.end(first)
    made_up.start()
    assert broken(run) == set()


def test_start_beyond_a_limit_is_noticed(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(limit=1)
    made_up.start()
    made_up.start()
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_job_that_ran_before_the_limit_counts(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.start(counted_in=None)
    made_up.limit(limit=1)
    made_up.start()
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_limit_that_is_lowered_is_broken_by_a_start_only(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(limit=3)
    jobs = [made_up.start() for _ in range(3)]
    made_up.limit(limit=1)
    for job in jobs:
        made_up.end(job)
    made_up.start()
    assert broken(run) == set()
    made_up.start()
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_topics_of_a_pool_count_together(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    for topic in ("train", "render"):
        made_up.limit(topic, pool="gpu", limit=1)
    made_up.start(topic="train", counted_in="gpu")
    made_up.start(topic="render", counted_in="gpu")
    assert broken(run) == {("I16", limits.WITHIN_LIMIT)}


def test_start_that_counts_in_no_pool_is_noticed(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(limit=5)
    made_up.start(counted_in=None)
    assert broken(run) == {("I16", limits.COUNTED_IN_POOL)}


def test_topic_without_limits_is_free(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(limit=1)
    made_up.unlimit()
    made_up.start(counted_in=None)
    made_up.start(counted_in=None)
    assert broken(run) == set()


@pytest.mark.parametrize(("own", "is_broken"), [(None, True), (2, False), (1, True)])
def test_limit_of_a_lane_counts_for_each_of_them(
    run: MadeUpRun, made_up: MadeUpLimits, own: int | None, is_broken: bool
) -> None:
    made_up.limit(per_lane=1)
    made_up.own_limit("a", own)
    made_up.start("a")
    made_up.start("b")
    for _ in range(2):
        made_up.start(None)
    made_up.start("a")
    assert broken(run) == ({("I16", limits.WITHIN_LANE)} if is_broken else set())


# ---------------------------------------------------------------- rates and holds


def test_starts_beyond_a_rate_are_noticed_in_any_period(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(starts=2, seconds=1.0)
    made_up.start()
    run.wait(900_000)
    made_up.start()
    run.wait(50_000)
    assert broken(run) == set()
    made_up.start()
    assert broken(run) == {("I17", rates.WITHIN_RATE)}


def test_start_that_is_older_than_the_period_counts_no_longer(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(starts=1, seconds=1.0)
    for _ in range(3):
        made_up.start()
        run.wait(1_000_000)
    assert broken(run) == set()


@pytest.mark.parametrize("again", [{"pool": "gpu"}, {"pool": "cpu"}, {}], ids=str)
def test_starts_of_a_topic_count_in_its_next_pool(
    run: MadeUpRun, made_up: MadeUpLimits, again: dict[str, str]
) -> None:
    made_up.limit(pool="gpu", starts=1, seconds=1.0)
    made_up.start(counted_in="gpu")
    made_up.limit(**again, limit=3, seconds=1.0)
    made_up.start(counted_in=again.get("pool", "sync"))
    assert broken(run) == set(), "there was no rate"
    made_up.limit(**again, starts=1, seconds=1.0)
    made_up.start(counted_in=again.get("pool", "sync"))
    assert broken(run) == {("I17", rates.WITHIN_RATE)}


def test_hold_of_a_topic_counts_in_its_next_pool(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit()
    made_up.hold(1.0)
    made_up.limit(pool="gpu", closed_until="2026-01-01T00:00:00+00:00")
    made_up.limit("other", pool="gpu")
    made_up.start(topic="other", counted_in="gpu")
    assert broken(run) == set()
    made_up.start(counted_in="gpu")
    assert broken(run) == {("I17", rates.NOT_WHILE_HELD)}


def test_topic_starts_once_its_hold_or_its_limit_has_ended(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit()
    made_up.hold(1.0)
    made_up.limit(pool="gpu", closed_until="2026-01-01T00:00:00+00:00")
    made_up.limit(pool="gpu")
    made_up.start(counted_in="gpu")
    made_up.hold(1.0, "gpu")
    made_up.limit(retired=True)
    made_up.start()
    assert broken(run) == set()


def test_starts_of_a_lane_beyond_its_rate_are_noticed(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(lane_starts=1, lane_seconds=1.0)
    made_up.start("a")
    made_up.start("b")
    assert broken(run) == set()
    made_up.start("a")
    assert broken(run) == {("I17", rates.WITHIN_LANE_RATE)}


def test_start_in_a_hold_is_noticed(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit()
    made_up.hold(1.0)
    made_up.start()
    assert broken(run) == {("I17", rates.NOT_WHILE_HELD)}


def test_start_after_a_hold_passes(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit()
    made_up.hold(1.0)
    run.wait(1_000_000)
    made_up.start()
    assert broken(run) == set()


# ---------------------------------------------------------------- order


def test_ordered_lane_that_keeps_its_order_passes(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(per_lane=1, ordered=True)
    made_up.own_limit("a", 3)
    first, second = made_up.wait(), made_up.wait()
    urgent = made_up.wait(priority=5)
    for job in (urgent, first, second):
        made_up.start("a", job=job)
        made_up.end(job, "a")
    assert broken(run) == set()


def test_job_that_passes_another_is_noticed(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(per_lane=1, ordered=True)
    made_up.wait()
    made_up.start("a", job=made_up.wait())
    assert broken(run) == {("I18", lane_order.IN_ORDER)}


def test_lanes_are_ordered_each_on_its_own(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(per_lane=1, ordered=True)
    made_up.wait("a")
    made_up.start("b", job=made_up.wait("b"))
    assert broken(run) == set()


def test_job_that_passes_one_that_is_tried_again_is_noticed(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(per_lane=1, ordered=True)
    first, second = made_up.wait(), made_up.wait()
    made_up.start("a", job=first)
    made_up.end(first, "a", again=True)
    made_up.start("a", job=second)
    assert broken(run) == {("I18", lane_order.RETRY_HOLDS)}


def test_job_that_is_canceled_before_it_is_tried_again_holds_nothing(
    run: MadeUpRun, made_up: MadeUpLimits
) -> None:
    made_up.limit(per_lane=1, ordered=True)
    first, second = made_up.wait(), made_up.wait()
    made_up.start("a", job=first)
    made_up.end(first, "a", again=True)
    made_up.drop(first)
    made_up.start("a", job=second)
    assert broken(run) == set()


def test_job_that_passes_the_second_of_two_that_are_tried_again_is_noticed(
    run: MadeUpRun, made_up: MadeUpLimits
) -> None:
    """Both ran at once before order was kept. They may come back in either order, but before all others."""
    made_up.limit(per_lane=2)
    first, second = made_up.wait(), made_up.wait()
    made_up.start("a", job=first)
    made_up.start("a", job=second)
    made_up.limit(per_lane=1, ordered=True)
    made_up.end(first, "a", again=True)
    made_up.end(second, "a", again=True)
    made_up.start("a", job=second)
    made_up.end(second, "a")
    assert broken(run) == set()
    made_up.start("a", job=made_up.wait(priority=9))
    assert broken(run) == {("I18", lane_order.RETRY_HOLDS)}


def test_retry_comes_before_a_job_of_higher_priority(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(per_lane=1, ordered=True)
    first = made_up.wait()
    made_up.start("a", job=first)
    made_up.end(first, "a", again=True)
    made_up.wait(priority=9)
    made_up.wait(job=first)
    made_up.start("a", job=first)
    assert broken(run) == set()


@pytest.mark.parametrize("is_first", [True, False])
def test_retry_from_before_order_was_given_up_may_come_first_once_it_is_kept_again(
    run: MadeUpRun, made_up: MadeUpLimits, is_first: bool
) -> None:
    made_up.limit(per_lane=1, ordered=True)
    retried = made_up.wait()
    made_up.start("a", job=retried)
    made_up.end(retried, "a", again=True)
    made_up.wait(job=retried)
    made_up.limit(per_lane=None)
    made_up.limit(per_lane=1, ordered=True)
    urgent, usual = made_up.wait(priority=9), made_up.wait()
    for job in (retried, urgent) if is_first else (urgent, retried):
        made_up.start("a", job=job)
        made_up.end(job, "a")
    made_up.start("a", job=usual)
    assert broken(run) == set()


def test_retry_from_before_order_was_given_up_passes_once_only(run: MadeUpRun, made_up: MadeUpLimits) -> None:
    made_up.limit(per_lane=1, ordered=True)
    retried = made_up.wait()
    made_up.start("a", job=retried)
    made_up.end(retried, "a", again=True)
    made_up.limit(per_lane=None)
    made_up.limit(per_lane=1, ordered=True)
    made_up.wait(priority=9)
    for _ in range(2):
        made_up.wait(job=retried)
        made_up.start("a", job=retried)
        made_up.end(retried, "a")
    assert broken(run) == {("I18", lane_order.IN_ORDER)}


# ---------------------------------------------------------------- what was seen from outside


def test_lane_that_is_stranded_is_noticed(run: MadeUpRun) -> None:
    run.write("nemesis", "stranded", topic="sync", lane="a")
    assert broken(run) == {("I19", lines.IN_LINE)}


def test_repair_by_a_sweep_is_noticed(run: MadeUpRun) -> None:
    run.write("nemesis", "repaired", pools=1, lanes=0)
    assert broken(run) == {("I19", lines.COUNTS_AGREE)}
