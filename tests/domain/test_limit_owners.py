"""Who owns a limit: the operator, else the strictest of the connected workers, else what held last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pulse_server.domain.limit_owners import GRACE, LimitDeclaration, LimitOwners, in_force
from pulse_server.domain.limits import (
    LONGEST_PERIOD,
    MAX_STARTS,
    NO_LIMIT_POLICY,
    SHORTEST_PERIOD,
    LimitPolicy,
    Rate,
    check_policy,
    strictest,
)
from tests.rows import each_row

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def declared(policy: LimitPolicy, missing_for: timedelta | None = None) -> LimitDeclaration:
    return LimitDeclaration(policy, 1, "w", NOON, missing_for)


def owners(*declarations: LimitDeclaration, override: LimitPolicy = NO_LIMIT_POLICY) -> LimitOwners:
    return LimitOwners("mail", override, declarations=declarations)


@each_row(
    "one, other, held",
    [
        (LimitPolicy(limit=20), LimitPolicy(limit=10), LimitPolicy(limit=10)),
        (LimitPolicy(limit=20), NO_LIMIT_POLICY, LimitPolicy(limit=20)),
        (LimitPolicy(per_lane=1), LimitPolicy(per_lane=2, turns=True), LimitPolicy(per_lane=1, turns=True)),
        (LimitPolicy(ordered=True), NO_LIMIT_POLICY, LimitPolicy(ordered=True)),
        (
            LimitPolicy(rate=Rate(100, MINUTE)),
            LimitPolicy(rate=Rate(1, SECOND)),
            LimitPolicy(rate=Rate(1, SECOND)),
        ),
        (LimitPolicy(aging=MINUTE), LimitPolicy(aging=SECOND), LimitPolicy(aging=SECOND)),
        (LimitPolicy(limit=1, pool="a"), LimitPolicy(limit=2, pool="b"), LimitPolicy(limit=1, pool="b")),
    ],
)
def test_strictest_entry_of_connected_workers_holds(
    one: LimitPolicy, other: LimitPolicy, held: LimitPolicy
) -> None:
    assert strictest([one, other]) == held
    assert owners(declared(one), declared(other)).declared == held


@each_row(
    "one, other, held",
    [
        (Rate(2, SECOND), Rate(60, MINUTE), Rate(2, 2 * SECOND)),
        (Rate(3, SECOND), Rate(5, MINUTE), Rate(3, MINUTE)),
        (Rate(10, SECOND), Rate(10, MINUTE), Rate(10, MINUTE)),
        (Rate(10, SECOND), Rate(20, SECOND), Rate(10, SECOND)),
    ],
)
def test_rates_of_different_periods_hold_both(one: Rate, other: Rate, held: Rate) -> None:
    both = [LimitPolicy(rate=one, lane_rate=other), LimitPolicy(rate=other, lane_rate=one)]
    assert strictest(both) == LimitPolicy(rate=held, lane_rate=held)
    topics = [
        LimitOwners(topic, LimitPolicy(rate=rate, pool="api"))
        for topic, rate in (("mail", one), ("sms", other))
    ]
    assert {policy.rate for policy in in_force(topics).values()} == {held}


RATES = st.builds(Rate, st.integers(1, MAX_STARTS), st.timedeltas(SHORTEST_PERIOD, LONGEST_PERIOD))


@given(st.lists(RATES, min_size=1, max_size=5))
def test_strictest_rate_exceeds_none_in_any_of_their_periods(rates: list[Rate]) -> None:
    held = strictest(LimitPolicy(rate=rate) for rate in rates).rate
    assert held is not None
    check_policy(LimitPolicy(rate=held), "limits")
    assert held == strictest(LimitPolicy(rate=rate) for rate in reversed(rates)).rate
    for rate in rates:
        most = held.starts * -(-rate.period // held.period)
        assert most <= rate.starts
    slowest = min(rates, key=lambda rate: rate.starts / rate.period.total_seconds())
    share = (held.starts / slowest.starts) * (slowest.period / held.period)
    assert share > 0.499, "and it is not slower than half of the slowest"


def test_operator_wins_over_a_stricter_worker_entry_by_entry() -> None:
    held = owners(declared(LimitPolicy(limit=10, per_lane=2)), override=LimitPolicy(limit=50)).effective
    assert held == LimitPolicy(limit=50, per_lane=2, turns=True)


def test_operator_can_switch_off_what_code_switches_on() -> None:
    assert owners(declared(LimitPolicy(turns=True)), override=LimitPolicy(turns=False)).effective.is_empty


def test_order_implies_one_job_of_a_lane_at_a_time() -> None:
    held = owners(declared(LimitPolicy(ordered=True)), override=LimitPolicy(per_lane=5)).effective
    assert held == LimitPolicy(per_lane=1, turns=True, ordered=True)


def test_worker_that_moves_to_another_server_keeps_its_limit() -> None:
    moving = declared(LimitPolicy(limit=10), missing_for=GRACE - SECOND)
    assert owners(moving, declared(LimitPolicy(limit=20))).declared == LimitPolicy(limit=10)


def test_limit_is_raised_once_the_last_worker_with_a_lower_one_has_left() -> None:
    gone = declared(LimitPolicy(limit=10), missing_for=GRACE)
    assert owners(gone, declared(LimitPolicy(limit=20))).declared == LimitPolicy(limit=20)


def test_last_that_held_stands_while_no_worker_is_connected() -> None:
    old = declared(LimitPolicy(limit=10), missing_for=timedelta(hours=2))
    last = declared(LimitPolicy(limit=20), missing_for=timedelta(hours=1))
    with_last = declared(LimitPolicy(limit=30), missing_for=timedelta(hours=1, seconds=10))
    assert owners(old, with_last, last).declared == LimitPolicy(limit=20)


def test_limit_ends_when_all_connected_workers_declare_nothing() -> None:
    gone = declared(LimitPolicy(limit=10), missing_for=timedelta(hours=1))
    assert LimitOwners("mail", declarations=(gone,), is_served=True).effective.is_empty


def test_difference_is_shown_with_its_workers() -> None:
    one, other = declared(LimitPolicy(limit=10)), declared(LimitPolicy(limit=20))
    assert owners(one, other).differing == [one, other]
    assert not owners(one, one).differing
    assert not owners(one, declared(LimitPolicy(limit=20), missing_for=GRACE)).differing


def test_topics_of_a_pool_share_the_smallest_numbers() -> None:
    held = in_force(
        [
            LimitOwners("a", LimitPolicy(limit=10, rate=Rate(5, SECOND), pool="gpu")),
            LimitOwners("b", LimitPolicy(limit=4, pool="gpu", per_lane=2)),
            LimitOwners("gpu", LimitPolicy(limit=3)),
            LimitOwners("other", LimitPolicy(limit=100)),
            LimitOwners("nothing", LimitPolicy(turns=False)),
        ]
    )
    assert held == {
        "a": LimitPolicy(limit=3, rate=Rate(5, SECOND), pool="gpu"),
        "b": LimitPolicy(limit=3, rate=Rate(5, SECOND), pool="gpu", per_lane=2, turns=True),
        "gpu": LimitPolicy(limit=3, rate=Rate(5, SECOND)),
        "other": LimitPolicy(limit=100),
    }


def test_pool_never_lowers_what_an_operator_has_set() -> None:
    held = in_force(
        [
            LimitOwners("a", LimitPolicy(limit=10, pool="gpu")),
            LimitOwners(
                "b", declarations=(declared(LimitPolicy(limit=1, rate=Rate(1, SECOND), pool="gpu")),)
            ),
        ]
    )
    assert held == {
        "a": LimitPolicy(limit=10, rate=Rate(1, SECOND), pool="gpu"),
        "b": LimitPolicy(limit=10, rate=Rate(1, SECOND), pool="gpu"),
    }


def test_declared_pool_with_the_name_of_another_topic_does_not_count() -> None:
    held = in_force(
        [
            LimitOwners("crm", LimitPolicy(limit=10)),
            LimitOwners("mail", declarations=(declared(LimitPolicy(limit=1, pool="crm")),)),
            LimitOwners("sms", LimitPolicy(limit=2, pool="crm")),
        ]
    )
    assert held == {
        "crm": LimitPolicy(limit=2),
        "mail": LimitPolicy(limit=1),
        "sms": LimitPolicy(limit=2, pool="crm"),
    }
