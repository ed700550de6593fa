"""Who owns a limit: the operator, else the strictest of the connected workers, else what held last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pulse.topic_settings import RATE, Entries, Rate
from pulse_server.topics.rules import (
    GRACE,
    NOT_SHORTENED,
    Decided,
    Declaration,
    Owners,
    in_force,
    limits_in_force,
    settings_of,
    strictest,
    values_of,
)
from tests.rows import each_row

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
NOTHING: Entries = {}
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def declared(entries: Entries, missing_for: timedelta | None = None) -> Declaration:
    return Declaration(entries, 1, "w", NOON, missing_for)


def owners(*declarations: Declaration, operator: Entries = NOTHING) -> Owners:
    return Owners("mail", operator, declarations=declarations)


def limits(*declarations: Declaration, operator: Entries = NOTHING) -> Entries:
    return values_of(owners(*declarations, operator=operator).limits)


def all_limits(*of: Owners) -> dict[str, Entries]:
    return {topic: values_of(decided) for topic, decided in limits_in_force(of).items()}


@each_row(
    "one, other, held",
    [
        ({"running": 20}, {"running": 10}, {"running": 10}),
        ({"running": 20}, NOTHING, {"running": 20}),
        ({"per_lane": 1}, {"per_lane": 2, "turns": True}, {"per_lane": 1, "turns": True}),
        ({"ordered": True}, NOTHING, {"ordered": True}),
        (
            {"rate": Rate(100, MINUTE)},
            {"rate": Rate(1, SECOND)},
            {"rate": Rate(1, SECOND)},
        ),
        ({"aging": MINUTE}, {"aging": SECOND}, {"aging": SECOND}),
        ({"running": 1, "pool": "a"}, {"running": 2, "pool": "b"}, {"running": 1, "pool": "b"}),
    ],
)
def test_strictest_entry_of_connected_workers_holds(one: Entries, other: Entries, held: Entries) -> None:
    assert strictest([one, other]) == held
    assert owners(declared(one), declared(other)).declared_limits == held


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
    both = [{"rate": one, "lane_rate": other}, {"rate": other, "lane_rate": one}]
    assert strictest(both) == {"rate": held, "lane_rate": held}
    topics = [Owners(topic, {"rate": rate, "pool": "api"}) for topic, rate in (("mail", one), ("sms", other))]
    assert {entries["rate"] for entries in all_limits(*topics).values()} == {held}


RATES = st.builds(Rate, st.integers(1, 1_000_000), st.timedeltas(RATE.shortest, RATE.longest))


@given(st.lists(RATES, min_size=1, max_size=5))
def test_strictest_rate_exceeds_none_in_any_of_their_periods(rates: list[Rate]) -> None:
    held = strictest({"rate": rate} for rate in rates)["rate"]
    RATE.check(held)
    assert held == strictest({"rate": rate} for rate in reversed(rates))["rate"]
    for rate in rates:
        most = held.starts * -(-rate.per // held.per)
        assert most <= rate.starts
    slowest = min(rates, key=lambda rate: rate.starts / rate.per.total_seconds())
    share = (held.starts / slowest.starts) * (slowest.per / held.per)
    assert share > 0.499, "and it is not slower than half of the slowest"


def test_operator_wins_over_a_stricter_worker_entry_by_entry() -> None:
    held = limits(declared({"running": 10, "per_lane": 2}), operator={"running": 50})
    assert held == {"running": 50, "per_lane": 2, "turns": True}


def test_operator_can_switch_off_what_code_switches_on() -> None:
    assert limits(declared({"turns": True}), operator={"turns": False}) == {}


def test_order_implies_one_job_of_a_lane_at_a_time() -> None:
    held = limits(declared({"ordered": True}), operator={"per_lane": 5})
    assert held == {"per_lane": 1, "turns": True, "ordered": True}


def test_worker_that_moves_to_another_server_keeps_its_limit() -> None:
    moving = declared({"running": 10}, missing_for=GRACE - SECOND)
    assert owners(moving, declared({"running": 20})).declared_limits == {"running": 10}


def test_limit_is_raised_once_the_last_worker_with_a_lower_one_has_left() -> None:
    gone = declared({"running": 10}, missing_for=GRACE)
    assert owners(gone, declared({"running": 20})).declared_limits == {"running": 20}


def test_last_that_held_stands_while_no_worker_is_connected() -> None:
    old = declared({"running": 10}, missing_for=timedelta(hours=2))
    last = declared({"running": 20}, missing_for=timedelta(hours=1))
    with_last = declared({"running": 30}, missing_for=timedelta(hours=1, seconds=10))
    assert owners(old, with_last, last).declared_limits == {"running": 20}


def test_limit_ends_when_all_connected_workers_declare_nothing() -> None:
    gone = declared({"running": 10}, missing_for=timedelta(hours=1))
    assert Owners("mail", declarations=(gone,), is_served=True).limits == {}


def test_difference_is_shown_with_its_workers() -> None:
    one, other = declared({"running": 10}), declared({"running": 20})
    assert owners(one, other).differing == [one, other]
    assert not owners(one, one).differing
    assert not owners(one, declared({"running": 20}, missing_for=GRACE)).differing


def test_topics_of_a_pool_share_the_smallest_numbers() -> None:
    held = all_limits(
        *[
            Owners("a", {"running": 10, "rate": Rate(5, SECOND), "pool": "gpu"}),
            Owners("b", {"running": 4, "pool": "gpu", "per_lane": 2}),
            Owners("gpu", {"running": 3}),
            Owners("other", {"running": 100}),
            Owners("nothing", {"turns": False}),
        ]
    )
    assert held == {
        "a": {"running": 3, "rate": Rate(5, SECOND), "pool": "gpu"},
        "b": {"running": 3, "rate": Rate(5, SECOND), "pool": "gpu", "per_lane": 2, "turns": True},
        "gpu": {"running": 3, "rate": Rate(5, SECOND)},
        "other": {"running": 100},
    }


def test_pool_never_lowers_what_an_operator_has_set() -> None:
    held = all_limits(
        *[
            Owners("a", {"running": 10, "pool": "gpu"}),
            Owners("b", declarations=(declared({"running": 1, "rate": Rate(1, SECOND), "pool": "gpu"}),)),
        ]
    )
    assert held == {
        "a": {"running": 10, "rate": Rate(1, SECOND), "pool": "gpu"},
        "b": {"running": 10, "rate": Rate(1, SECOND), "pool": "gpu"},
    }


def test_declared_pool_with_the_name_of_another_topic_does_not_count() -> None:
    held = all_limits(
        *[
            Owners("crm", {"running": 10}),
            Owners("mail", declarations=(declared({"running": 1, "pool": "crm"}),)),
            Owners("sms", {"running": 2, "pool": "crm"}),
        ]
    )
    assert held == {
        "crm": {"running": 2},
        "mail": {"running": 1},
        "sms": {"running": 2, "pool": "crm"},
    }


def test_each_value_in_force_has_the_one_who_set_it() -> None:
    server = {"max_attempts": 25, "max_crashes": 5, "keep_completed": timedelta(days=7)}
    topic = Owners(
        "mail",
        {"running": 5, "max_attempts": 8},
        declarations=(declared({"running": 3, "ordered": True, "pool": "gpu"}),),
        runs={"max_attempts": 3, "attempt_timeout": MINUTE},
    )
    other = Owners("sms", {"running": 2, "pool": "gpu"})
    found = settings_of(topic, limits_in_force([topic, other])["mail"], server, NOT_SHORTENED, "")
    assert found.decided == {
        "running": Decided(2, "pool"),
        "pool": Decided("gpu", "code"),
        "per_lane": Decided(1, "code"),
        "turns": Decided(True, "code"),
        "ordered": Decided(True, "code"),
        "max_attempts": Decided(8, "operator"),
        "attempt_timeout": Decided(MINUTE, "code"),
        "max_crashes": Decided(5, "server"),
        "keep_completed": Decided(timedelta(days=7), "server"),
    }


def test_operator_wins_over_code_which_wins_over_the_server() -> None:
    assert in_force({"running": 1}, {"running": 2, "aging": MINUTE}, {"running": 3, "max_crashes": 5}) == {
        "running": Decided(1, "operator"),
        "aging": Decided(MINUTE, "code"),
        "max_crashes": Decided(5, "server"),
    }


def test_newest_declaration_of_limits_or_runs_is_named() -> None:
    late = NOON + MINUTE
    both = Owners("mail", declarations=(declared({"running": 1}),), runs={"max_attempts": 3}, runs_at=late)
    assert both.declared_last == (late, "")
    assert owners(declared({"running": 1})).declared_last == (NOON, "w")
    assert owners(declared({})).declared_last == (None, "")
