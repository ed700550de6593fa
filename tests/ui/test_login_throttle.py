"""How many passwords an address may try."""

from __future__ import annotations

from pulse_server.access.service import LOGIN_BURST_PER_PEER, LOGIN_BURST_PER_USER, Throttle
from pulse_ui import tuning
from pulse_ui.access import LoginThrottle


def test_addresses_of_one_ipv6_network_share_their_tries() -> None:
    throttle = LoginThrottle(clock=lambda: 0.0)
    waits = [throttle.take(f"2001:db8::{number:x}") for number in range(tuning.LOGIN_TRIES + 1)]
    assert waits == [0.0] * tuning.LOGIN_TRIES + [tuning.LOGIN_TRY_EVERY.total_seconds()]


def test_try_that_is_given_back_does_not_count() -> None:
    throttle = LoginThrottle(clock=lambda: 0.0)
    for _ in range(tuning.LOGIN_TRIES + 1):
        assert throttle.take("192.0.2.1") == 0.0
        throttle.give_back("192.0.2.1")


def test_one_visitor_does_not_use_up_the_logins_of_the_others() -> None:
    """To pulsed all visitors of a dashboard are one address."""
    now = 0.0
    dashboard, pulsed = LoginThrottle(clock=lambda: now), Throttle(clock=lambda: now)
    for _ in range(600):  # ten minutes, a wrong password each second, all for one user
        if not dashboard.take("203.0.113.66"):
            assert pulsed.take("the dashboard", "ada") == 0.0
        assert dashboard.take("192.0.2.1") == 0.0
        assert pulsed.take("the dashboard", "ada") == 0.0, f"ada is locked out after {now:.0f} s"
        pulsed.give_back("the dashboard", "ada")
        dashboard.give_back("192.0.2.1")
        now += 1.0
    assert min(LOGIN_BURST_PER_USER, LOGIN_BURST_PER_PEER) > tuning.LOGIN_TRIES
