"""The pool by itself: how many are lent, to whom, and what becomes of connections that broke."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pulse_server.database.connections import Pool

PATIENCE = 5.0


class FakeSession:
    def __init__(self) -> None:
        self.is_over = False

    def is_closed(self) -> bool:
        return self.is_over

    def terminate(self) -> None:
        self.is_over = True


class Host:
    """Opens connections, unless it is away."""

    def __init__(self) -> None:
        self.opened: list[FakeSession] = []
        self.is_away = False
        self.never_answers = False

    async def connect(self) -> Any:
        if self.is_away:
            raise ConnectionRefusedError
        if self.never_answers:
            await asyncio.Event().wait()
        self.opened.append(FakeSession())
        return cast(Any, self.opened[-1])


@pytest.fixture
def host() -> Host:
    return Host()


async def test_connection_that_came_back_is_lent_again(host: Host) -> None:
    pool = Pool(host.connect, 2)
    for _ in range(3):
        pool.give_back(await pool.borrow(PATIENCE))

    assert len(host.opened) == 1
    assert (pool.opened, pool.busy) == (1, 0)


async def test_who_finds_all_lent_gets_the_one_that_comes_back(host: Host) -> None:
    pool = Pool(host.connect, 1)
    first = await pool.borrow(PATIENCE)
    waiting = asyncio.create_task(pool.borrow(PATIENCE))
    await asyncio.sleep(0)
    assert not waiting.done()

    pool.give_back(first)

    assert await waiting is first
    assert (len(host.opened), pool.busy) == (1, 1)


async def test_borrower_that_times_out_gets_an_error_and_takes_no_connection(host: Host) -> None:
    pool = Pool(host.connect, 1)
    lent = await pool.borrow(PATIENCE)
    with pytest.raises(TimeoutError):
        await pool.borrow(0.01)

    pool.give_back(lent)

    assert await pool.borrow(PATIENCE) is lent


async def test_connection_that_broke_is_lent_no_more(host: Host) -> None:
    pool = Pool(host.connect, 1)
    lent = await pool.borrow(PATIENCE)
    lent.terminate()
    pool.give_back(lent)
    idle = await pool.borrow(PATIENCE)
    pool.give_back(idle)
    idle.terminate()  # while no caller had it

    assert await pool.borrow(PATIENCE) not in (lent, idle)
    assert pool.opened == 1


@pytest.mark.parametrize(
    ("trouble", "error"), [("is_away", ConnectionRefusedError), ("never_answers", TimeoutError)]
)
async def test_place_of_a_connection_that_could_not_be_opened_is_free_again(
    host: Host, trouble: str, error: type[Exception]
) -> None:
    pool = Pool(host.connect, 1)
    setattr(host, trouble, True)
    for _ in range(2):
        with pytest.raises(error):
            await pool.borrow(0.01)
    setattr(host, trouble, False)

    assert await pool.borrow(PATIENCE) is host.opened[0]


async def test_canceled_borrower_takes_no_connection(host: Host) -> None:
    pool = Pool(host.connect, 1)
    lent = await pool.borrow(PATIENCE)
    waiting = asyncio.create_task(pool.borrow(PATIENCE))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})

    pool.give_back(lent)

    assert await pool.borrow(PATIENCE) is lent


async def test_closing_cuts_what_is_lent_and_what_is_not(host: Host) -> None:
    pool = Pool(host.connect, 2)
    lent, idle = await pool.borrow(PATIENCE), await pool.borrow(PATIENCE)
    pool.give_back(idle)

    pool.close()

    assert lent.is_closed()
    assert idle.is_closed()
