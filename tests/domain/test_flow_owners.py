"""Who owns a limit: the operator, else the strictest of the connected workers, else what held last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pulse_server.domain.flow import (
    LONGEST_PERIOD,
    MAX_STARTS,
    NO_FLOW_POLICY,
    SHORTEST_PERIOD,
    FlowPolicy,
    Rate,
    check_policy,
    strictest,
)
from pulse_server.domain.flow_owners import GRACE, FlowDeclaration, FlowOwners, in_force
from tests.rows import each_row

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def declared(policy: FlowPolicy, missing_for: timedelta | None = None) -> FlowDeclaration:
    return FlowDeclaration(policy, 1, "w", NOON, missing_for)


def owners(*declarations: FlowDeclaration, override: FlowPolicy = NO_FLOW_POLICY) -> FlowOwners:
    return FlowOwners("mail", override, declarations=declarations)


@each_row(
    "one, other, held",
    [
        (FlowPolicy(limit=20), FlowPolicy(limit=10), FlowPolicy(limit=10)),
        (FlowPolicy(limit=20), NO_FLOW_POLICY, FlowPolicy(limit=20)),
        (FlowPolicy(per_lane=1), FlowPolicy(per_lane=2, turns=True), FlowPolicy(per_lane=1, turns=True)),
        (FlowPolicy(ordered=True), NO_FLOW_POLICY, FlowPolicy(ordered=True)),
        (
            FlowPolicy(rate=Rate(100, MINUTE)),
            FlowPolicy(rate=Rate(1, SECOND)),
            FlowPolicy(rate=Rate(1, SECOND)),
        ),
        (FlowPolicy(aging=MINUTE), FlowPolicy(aging=SECOND), FlowPolicy(aging=SECOND)),
        (FlowPolicy(limit=1, pool="a"), FlowPolicy(limit=2, pool="b"), FlowPolicy(limit=1, pool="b")),
    ],
)
def test_strictest_entry_of_connected_workers_holds(
    one: FlowPolicy, other: FlowPolicy, held: FlowPolicy
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
    both = [FlowPolicy(rate=one, lane_rate=other), FlowPolicy(rate=other, lane_rate=one)]
    assert strictest(both) == FlowPolicy(rate=held, lane_rate=held)
    topics = [
        FlowOwners(topic, FlowPolicy(rate=rate, pool="api"))
        for topic, rate in (("mail", one), ("sms", other))
    ]
    assert {policy.rate for policy in in_force(topics).values()} == {held}


RATES = st.builds(Rate, st.integers(1, MAX_STARTS), st.timedeltas(SHORTEST_PERIOD, LONGEST_PERIOD))


@given(st.lists(RATES, min_size=1, max_size=5))
def test_strictest_rate_exceeds_none_in_any_of_their_periods(rates: list[Rate]) -> None:
    held = strictest(FlowPolicy(rate=rate) for rate in rates).rate
    assert held is not None
    check_policy(FlowPolicy(rate=held), "flow")
    assert held == strictest(FlowPolicy(rate=rate) for rate in reversed(rates)).rate
    for rate in rates:
        most = held.starts * -(-rate.period // held.period)
        assert most <= rate.starts
    slowest = min(rates, key=lambda rate: rate.starts / rate.period.total_seconds())
    share = (held.starts / slowest.starts) * (slowest.period / held.period)
    assert share > 0.499, "and it is not slower than half of the slowest"


def test_operator_wins_over_a_stricter_worker_entry_by_entry() -> None:
    held = owners(declared(FlowPolicy(limit=10, per_lane=2)), override=FlowPolicy(limit=50)).effective
    assert held == FlowPolicy(limit=50, per_lane=2, turns=True)


def test_operator_can_switch_off_what_code_switches_on() -> None:
    assert owners(declared(FlowPolicy(turns=True)), override=FlowPolicy(turns=False)).effective.is_empty


def test_order_implies_one_job_of_a_lane_at_a_time() -> None:
    held = owners(declared(FlowPolicy(ordered=True)), override=FlowPolicy(per_lane=5)).effective
    assert held == FlowPolicy(per_lane=1, turns=True, ordered=True)


def test_worker_that_moves_to_another_server_keeps_its_limit() -> None:
    moving = declared(FlowPolicy(limit=10), missing_for=GRACE - SECOND)
    assert owners(moving, declared(FlowPolicy(limit=20))).declared == FlowPolicy(limit=10)


def test_limit_is_raised_once_the_last_worker_with_a_lower_one_has_left() -> None:
    gone = declared(FlowPolicy(limit=10), missing_for=GRACE)
    assert owners(gone, declared(FlowPolicy(limit=20))).declared == FlowPolicy(limit=20)


def test_last_that_held_stands_while_no_worker_is_connected() -> None:
    old = declared(FlowPolicy(limit=10), missing_for=timedelta(hours=2))
    last = declared(FlowPolicy(limit=20), missing_for=timedelta(hours=1))
    with_last = declared(FlowPolicy(limit=30), missing_for=timedelta(hours=1, seconds=10))
    assert owners(old, with_last, last).declared == FlowPolicy(limit=20)


def test_limit_ends_when_all_connected_workers_declare_nothing() -> None:
    gone = declared(FlowPolicy(limit=10), missing_for=timedelta(hours=1))
    assert FlowOwners("mail", declarations=(gone,), is_served=True).effective.is_empty


def test_difference_is_shown_with_its_workers() -> None:
    one, other = declared(FlowPolicy(limit=10)), declared(FlowPolicy(limit=20))
    assert owners(one, other).differing == [one, other]
    assert not owners(one, one).differing
    assert not owners(one, declared(FlowPolicy(limit=20), missing_for=GRACE)).differing


def test_topics_of_a_pool_share_the_smallest_numbers() -> None:
    held = in_force(
        [
            FlowOwners("a", FlowPolicy(limit=10, rate=Rate(5, SECOND), pool="gpu")),
            FlowOwners("b", FlowPolicy(limit=4, pool="gpu", per_lane=2)),
            FlowOwners("gpu", FlowPolicy(limit=3)),
            FlowOwners("other", FlowPolicy(limit=100)),
            FlowOwners("nothing", FlowPolicy(turns=False)),
        ]
    )
    assert held == {
        "a": FlowPolicy(limit=3, rate=Rate(5, SECOND), pool="gpu"),
        "b": FlowPolicy(limit=3, rate=Rate(5, SECOND), pool="gpu", per_lane=2, turns=True),
        "gpu": FlowPolicy(limit=3, rate=Rate(5, SECOND)),
        "other": FlowPolicy(limit=100),
    }


def test_pool_never_lowers_what_an_operator_has_set() -> None:
    held = in_force(
        [
            FlowOwners("a", FlowPolicy(limit=10, pool="gpu")),
            FlowOwners("b", declarations=(declared(FlowPolicy(limit=1, rate=Rate(1, SECOND), pool="gpu")),)),
        ]
    )
    assert held == {
        "a": FlowPolicy(limit=10, rate=Rate(1, SECOND), pool="gpu"),
        "b": FlowPolicy(limit=10, rate=Rate(1, SECOND), pool="gpu"),
    }


def test_declared_pool_with_the_name_of_another_topic_does_not_count() -> None:
    held = in_force(
        [
            FlowOwners("crm", FlowPolicy(limit=10)),
            FlowOwners("mail", declarations=(declared(FlowPolicy(limit=1, pool="crm")),)),
            FlowOwners("sms", FlowPolicy(limit=2, pool="crm")),
        ]
    )
    assert held == {
        "crm": FlowPolicy(limit=2),
        "mail": FlowPolicy(limit=1),
        "sms": FlowPolicy(limit=2, pool="crm"),
    }
