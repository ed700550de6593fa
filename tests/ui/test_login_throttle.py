"""How many passwords an address may try."""

from __future__ import annotations

from pulse_ui import tuning
from pulse_ui.web.throttle import LoginThrottle


def test_addresses_of_one_ipv6_network_share_their_tries() -> None:
    throttle = LoginThrottle(clock=lambda: 0.0)
    waits = [throttle.take(f"2001:db8::{number:x}") for number in range(tuning.LOGIN_TRIES + 1)]
    assert waits == [0.0] * tuning.LOGIN_TRIES + [tuning.LOGIN_TRY_EVERY.total_seconds()]


def test_try_that_is_given_back_does_not_count() -> None:
    throttle = LoginThrottle(clock=lambda: 0.0)
    for _ in range(tuning.LOGIN_TRIES + 1):
        assert throttle.take("192.0.2.1") == 0.0
        throttle.give_back("192.0.2.1")
