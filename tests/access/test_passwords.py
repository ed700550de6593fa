"""Passwords: right ones match, and the time of a check does not depend on whether the user exists."""

import asyncio

import pytest

from pulse_server.access.service import PASSWORD_LINE, PASSWORD_THREADS, Passwords
from pulse_server.access.users import User
from pulse_server.base.errors import Unavailable
from tests.access.counted_checks import CountedChecks, hashed
from tests.rows import each_row

PLAIN = User("ann", "päss")
HASHED = User("bob", hashed("päss"))


@each_row("user", [PLAIN, HASHED])
async def test_right_password_matches_and_no_other_does(user: User) -> None:
    passwords = Passwords()
    assert await passwords.match(user, "päss".encode(), user.bcrypt_cost)
    for wrong in (b"", b"p", "pässs".encode(), "PÄSS".encode(), user.secret.encode() + b" ", b"\xff"):
        assert not await passwords.match(user, wrong, user.bcrypt_cost)
    passwords.close()


async def test_hash_itself_is_no_password() -> None:
    assert not await Passwords().match(HASHED, HASHED.secret.encode(), 4)


@each_row("cost", [0, 4])
async def test_unknown_user_matches_no_password(cost: int) -> None:
    for password in (b"", b"x", b"." * 53):
        assert not await Passwords().match(None, password, cost)


async def test_password_that_bcrypt_would_read_otherwise_is_wrong_without_a_check(
    checks: CountedChecks,
) -> None:
    """bcrypt repeats the text before a NUL, and ignores everything after 72 bytes."""
    user = User("bob", hashed("abc"))
    assert not await Passwords().match(user, b"abc\0abc", 4)
    assert not await Passwords().match(user, b"a" * 73, 4)
    assert not await Passwords().match(None, b"a" * 73, 4)
    assert checks.count == 0


@pytest.mark.parametrize("user", [None, PLAIN, HASHED], ids=["unknown", "plain", "hashed"])
async def test_where_there_is_a_hash_every_answer_costs_one_check(
    user: User | None, checks: CountedChecks
) -> None:
    await Passwords().match(user, b"wrong", 4)
    assert checks.costs == [4]
    await Passwords().match(user, "päss".encode(), 4)
    assert checks.costs == [4, 4]


async def test_unknown_user_costs_as_much_as_the_costliest_hash(checks: CountedChecks) -> None:
    await Passwords().match(None, b"wrong", 6)
    await Passwords().match(PLAIN, b"wrong", 6)
    assert checks.costs == [6, 6]


async def test_plain_passwords_alone_are_never_hashed(checks: CountedChecks) -> None:
    assert await Passwords().match(PLAIN, "päss".encode(), 0)
    assert not await Passwords().match(None, b"x", 0)
    assert checks.count == 0


async def test_line_is_bounded_and_past_it_the_answer_is_unavailable(checks: CountedChecks) -> None:
    passwords = Passwords()
    room = PASSWORD_THREADS + PASSWORD_LINE
    with checks.held_back():
        waiting = [asyncio.create_task(passwords.match(HASHED, b"x", 4)) for _ in range(room)]
        await checks.wait_for(PASSWORD_THREADS)
        with pytest.raises(Unavailable, match="Try again in a moment"):
            await passwords.match(HASHED, "päss".encode(), 4)
    assert await asyncio.gather(*waiting) == [False] * room
    assert await passwords.match(HASHED, "päss".encode(), 4)
    passwords.close()
