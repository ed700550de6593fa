"""Authentication of callers: checks, cached results, throttling, and the answers."""

import asyncio
import base64
import gc
import logging

import pytest

from pulse_server.access.service import (
    LOGIN_BURST_PER_PEER,
    LOGIN_BURST_PER_USER,
    PASSWORD_THREADS,
    Authenticator,
)
from pulse_server.access.users import Directory, Role, User
from pulse_server.base.errors import TooManyLogins, Unauthenticated, Unavailable
from pulse_server.base.metrics import Metrics
from tests.access.counted_checks import CountedChecks, hashed
from tests.fakes.clock import Seconds

ANN = User("ann", hashed("one"), Role.WORKER)
BOB = User("bob", hashed("two"))
CID = User("cid", "three")
PEER = "10.0.0.1"


def shown(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class House:
    def __init__(self, *users: User) -> None:
        self.clock = Seconds()
        self.directory = Directory(users)
        self.metrics = Metrics()
        self.authenticator = Authenticator(self.directory, self.metrics, clock=self.clock)

    async def login(self, user: str, password: str, peer: str = PEER) -> User:
        return await self.authenticator.authenticate(shown(user, password), peer)

    async def fails(self, user: str, password: str, peer: str = PEER) -> str:
        """Return the error of the login."""
        with pytest.raises((Unauthenticated, TooManyLogins, Unavailable)) as caught:
            await self.login(user, password, peer)
        return type(caught.value).__name__

    @property
    def logins(self) -> dict[str, int]:
        return {result: int(count) for (result,), count in self.metrics.logins.values.items()}


@pytest.fixture
def house(checks: CountedChecks) -> House:
    return House(ANN, BOB, CID)


async def test_right_credentials_are_the_users(house: House) -> None:
    assert await house.login("ann", "one") == ANN
    assert await house.login("bob", "two") == BOB
    assert await house.login("cid", "three") == CID


@pytest.mark.parametrize("user", ["ann", "cid", "unknown", "", "ANN"])
async def test_wrong_password_and_unknown_user_get_the_same_answer_at_the_same_cost(
    house: House, checks: CountedChecks, user: str
) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await house.login(user, "wrong")
    assert str(caught.value) == "The user or the password is wrong."
    assert checks.costs == [4]


async def test_missing_credentials_are_asked_for(house: House, checks: CountedChecks) -> None:
    for nothing in (None, ""):
        with pytest.raises(Unauthenticated, match=r"wants a user and a password: give Pulse\(user="):
            await house.authenticator.authenticate(nothing, PEER)
    assert checks.count == 0


async def test_malformed_credentials_are_not_quoted(house: House, checks: CountedChecks) -> None:
    with pytest.raises(Unauthenticated, match="cannot be read") as caught:
        await house.authenticator.authenticate("Basic tweety", PEER)
    assert "tweety" not in str(caught.value)
    assert checks.count == 0


async def test_success_is_checked_once(house: House, checks: CountedChecks) -> None:
    for _ in range(5):
        await house.login("ann", "one")
    assert house.authenticator.recognize(shown("ann", "one")) == ANN
    assert checks.count == 1
    assert house.logins == {"ok": 1}


async def test_remembered_success_does_not_let_another_password_in(house: House) -> None:
    await house.login("ann", "one")
    assert house.authenticator.recognize(shown("ann", "two")) is None
    assert house.authenticator.recognize(shown("bob", "one")) is None
    assert await house.fails("ann", "two") == "Unauthenticated"
    assert await house.fails("ann", "one ") == "Unauthenticated"


async def test_failure_is_not_remembered_as_anything(house: House, checks: CountedChecks) -> None:
    await house.fails("ann", "wrong")
    assert house.authenticator.recognize(shown("ann", "wrong")) is None
    await house.fails("ann", "wrong")
    assert checks.count == 2


async def test_secrets_are_not_kept_in_what_is_remembered(house: House) -> None:
    await house.login("ann", "one")
    remembered = repr(house.authenticator._verified)
    assert "one" not in remembered
    assert ANN.secret not in remembered


async def test_hundred_callers_with_the_same_credentials_are_one_check(
    house: House, checks: CountedChecks
) -> None:
    with checks.held_back():
        logins = [asyncio.create_task(house.login("ann", "one", f"10.0.0.{n}")) for n in range(100)]
        await checks.wait_for(1)
    assert await asyncio.gather(*logins) == [ANN] * 100
    assert checks.count == 1


async def test_caller_who_hangs_up_does_not_take_the_answer_from_the_others(
    house: House, checks: CountedChecks
) -> None:
    with checks.held_back():
        first, second = (asyncio.create_task(house.login("ann", "one")) for _ in range(2))
        await checks.wait_for(1)
        first.cancel()
        await asyncio.wait({first})
    assert await second == ANN
    assert checks.count == 1


async def test_failure_of_an_abandoned_login_is_no_error_of_the_loop(
    house: House, checks: CountedChecks, caplog: pytest.LogCaptureFixture
) -> None:
    with checks.held_back():
        caller = asyncio.create_task(house.login("ann", "wrong"))
        await checks.wait_for(1)
        (check,) = house.authenticator._checks.values()
        caller.cancel()
    await asyncio.wait({check, caller})
    del check
    await asyncio.sleep(0)
    gc.collect()
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_wrong_passwords_are_held_back_before_any_hashing(house: House, checks: CountedChecks) -> None:
    ends = [await house.fails("ann", f"wrong-{number}") for number in range(100)]
    burst = LOGIN_BURST_PER_USER
    assert ends == ["Unauthenticated"] * burst + ["TooManyLogins"] * (100 - burst)
    assert checks.count == burst
    assert house.logins == {"wrong": burst, "throttled": 100 - burst}


async def test_made_up_users_are_held_back_before_any_hashing(house: House, checks: CountedChecks) -> None:
    for number in range(100):
        await house.fails(f"user-{number}", "x")
    assert checks.count == LOGIN_BURST_PER_PEER


async def test_answer_says_how_long_to_wait(house: House) -> None:
    for number in range(LOGIN_BURST_PER_USER):
        await house.fails("ann", f"wrong-{number}")
    with pytest.raises(TooManyLogins, match=r"Try again in 2 seconds\.") as caught:
        await house.login("ann", "one")
    house.clock.advance(caught.value.wait_seconds)
    assert await house.login("ann", "one") == ANN


async def test_remembered_success_is_never_held_back(house: House, checks: CountedChecks) -> None:
    await house.login("ann", "one")
    for number in range(100):
        await house.fails("ann", f"wrong-{number}")
    checks.hashes.clear()
    assert await house.login("ann", "one") == ANN
    assert checks.count == 0


async def test_other_addresses_are_not_held_back(house: House) -> None:
    for number in range(100):
        await house.fails("ann", f"wrong-{number}")
    assert await house.login("ann", "one", "10.0.0.2") == ANN


async def test_checks_at_the_same_time_are_counted_before_they_fail(
    house: House, checks: CountedChecks
) -> None:
    with checks.held_back():
        logins = [asyncio.create_task(house.fails("ann", f"wrong-{number}")) for number in range(50)]
        await checks.wait_for(1)
    ends = await asyncio.gather(*logins)
    assert ends.count("TooManyLogins") == 50 - LOGIN_BURST_PER_USER
    assert checks.count == LOGIN_BURST_PER_USER


async def test_busy_answer_does_not_count_against_the_caller(
    house: House, checks: CountedChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.access.service.PASSWORD_LINE", 0)
    with checks.held_back():
        logins = [
            asyncio.create_task(house.fails("unknown", "x", f"10.0.1.{n}")) for n in range(PASSWORD_THREADS)
        ]
        # The same password from everywhere would be one check.
        logins[1:] = [asyncio.create_task(house.fails("unknown", f"x{n}")) for n in range(1, len(logins))]
        await checks.wait_for(PASSWORD_THREADS)
        for _ in range(50):
            assert await house.fails("ann", "one", "10.0.0.2") == "Unavailable"
    await asyncio.gather(*logins, return_exceptions=True)
    assert await house.login("ann", "one", "10.0.0.2") == ANN
    assert house.logins["busy"] == 50


async def test_removed_user_is_forgotten_and_others_are_not(house: House, checks: CountedChecks) -> None:
    await house.login("ann", "one")
    await house.login("bob", "two")
    house.directory.replace([BOB])
    assert await house.fails("ann", "one") == "Unauthenticated"
    checks.hashes.clear()
    assert await house.login("bob", "two") == BOB
    assert checks.count == 0


async def test_changed_password_is_asked_for_at_once(house: House) -> None:
    await house.login("ann", "one")
    changed = User("ann", hashed("new"), Role.WORKER)
    house.directory.replace([changed, BOB])
    assert await house.fails("ann", "one") == "Unauthenticated"
    assert await house.login("ann", "new") == changed


async def test_changed_role_holds_at_once_without_another_check(house: House, checks: CountedChecks) -> None:
    await house.login("ann", "one")
    house.directory.replace([User("ann", ANN.secret, Role.VIEWER), BOB])
    assert (await house.login("ann", "one")).role is Role.VIEWER
    assert checks.count == 1


async def test_check_that_was_in_progress_when_the_user_was_removed_fails(
    house: House, checks: CountedChecks
) -> None:
    with checks.held_back():
        login = asyncio.create_task(house.fails("ann", "one"))
        await checks.wait_for(1)
        house.directory.replace([BOB])
    assert await login == "Unauthenticated"
    assert house.authenticator.recognize(shown("ann", "one")) is None


async def test_check_that_was_in_progress_when_the_password_changed_is_repeated(
    house: House, checks: CountedChecks
) -> None:
    changed = User("ann", hashed("one"))
    with checks.held_back():
        login = asyncio.create_task(house.login("ann", "one"))
        await checks.wait_for(1)
        house.directory.replace([changed, BOB])
    assert await login == changed
    assert checks.hashes == [ANN.secret, changed.secret]


async def test_refused_login_is_logged_without_what_may_be_a_password(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.fails("ann", "tweety-4711")
    await house.fails("tweety-4711", "tweety-4711")
    events = [vars(record) for record in caplog.records if record.message == "login_refused"]
    assert [(entry["user"], entry["peer"]) for entry in events] == [("ann", PEER), (None, PEER)]
    assert "tweety" not in str(events)


def test_costs_that_differ_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    directory = Directory([ANN, BOB, CID])
    assert caplog.records == []
    directory.replace([ANN, User("bob", hashed("two", 5)), CID])
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "bcrypt_costs_differ"
    ]
    assert directory.highest_cost == 5
