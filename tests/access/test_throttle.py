"""The throttle of failed logins."""

import pytest

from pulse_server.access.service import (
    LOGIN_BURST_PER_PEER,
    LOGIN_BURST_PER_USER,
    LOGIN_INTERVAL,
    Throttle,
    network_of,
    plain_address,
)
from tests.fakes.clock import Seconds
from tests.rows import each_row

PER_USER = LOGIN_BURST_PER_USER
PER_PEER = LOGIN_BURST_PER_PEER
INTERVAL = LOGIN_INTERVAL.total_seconds()


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def throttle(clock: Seconds) -> Throttle:
    return Throttle(clock)


def taken(throttle: Throttle, peer: str, users: list[str]) -> int:
    """Return how many of these checks were granted."""
    return sum(throttle.take(peer, user) == 0 for user in users)


def test_user_may_be_wrong_a_few_times_then_once_in_an_interval(throttle: Throttle, clock: Seconds) -> None:
    assert taken(throttle, "10.0.0.1", ["ann"] * 50) == PER_USER
    assert throttle.take("10.0.0.1", "ann") == pytest.approx(INTERVAL)
    clock.advance(INTERVAL / 2)
    assert throttle.take("10.0.0.1", "ann") == pytest.approx(INTERVAL / 2)
    clock.advance(INTERVAL / 2)
    assert taken(throttle, "10.0.0.1", ["ann"] * 50) == 1
    clock.advance(10 * INTERVAL)
    assert taken(throttle, "10.0.0.1", ["ann"] * 50) == PER_USER


def test_other_users_and_other_addresses_are_not_held_back(throttle: Throttle) -> None:
    taken(throttle, "10.0.0.1", ["ann"] * 50)
    assert throttle.take("10.0.0.1", "bob") == 0
    assert throttle.take("10.0.0.2", "ann") == 0


def test_another_name_each_time_is_no_way_round(throttle: Throttle, clock: Seconds) -> None:
    names = [f"user-{number}" for number in range(1000)]
    assert taken(throttle, "10.0.0.1", names) == PER_PEER
    clock.advance(10 * INTERVAL)
    assert taken(throttle, "10.0.0.1", names) == 10


def test_refused_take_costs_nothing(throttle: Throttle, clock: Seconds) -> None:
    for _ in range(1000):
        throttle.take("10.0.0.1", "ann")
    clock.advance(INTERVAL)
    assert throttle.take("10.0.0.1", "ann") == 0


def test_check_that_succeeds_does_not_count(throttle: Throttle) -> None:
    for _ in range(10 * PER_PEER):
        assert throttle.take("10.0.0.1", "ann") == 0
        throttle.give_back("10.0.0.1", "ann")


def test_memory_is_bounded_and_the_address_stays_throttled(
    throttle: Throttle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.access.service.LOGINS_REMEMBERED", 100)
    taken(throttle, "10.0.0.1", [f"user-{number}" for number in range(1000)])
    for number in range(50):
        throttle.take(f"10.0.1.{number}", "x" * 10_000)
    assert throttle.take("10.0.0.1", "ann") > 0
    for number in range(10_000):
        throttle.take(f"10.{number // 250}.2.{number % 250}", "ann")
    assert len(throttle._peers._full_at) == len(throttle._users._full_at) == 100


@each_row(
    "peer, network",
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::", "2001:db8:1:2::"),
        ("::1", "::"),
        ("unix", "unix"),
        ("", ""),
    ],
)
def test_one_caller_is_an_ipv4_address_or_a_64_of_ipv6(peer: str, network: str) -> None:
    assert network_of(peer) == network


@each_row(
    "peer, expected",
    [("::ffff:192.0.2.7", "192.0.2.7"), ("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::7"), ("", "")],
)
def test_ipv4_is_plain_on_either_kind_of_socket(peer: str, expected: str) -> None:
    assert plain_address(peer) == expected
