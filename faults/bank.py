"""A bank in the database of the run: accounts, wishes and transfers. `bank.sql` has its tables."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from faults.audit import Connection

BANK = "bank"
ACCOUNTS, BALANCE = 500, 1_000
_AMOUNTS = 9
# A process that is frozen in a transaction holds rows of accounts and of jobs. The others go on after this.
SESSION_SETTINGS = {"idle_in_transaction_session_timeout": "1s", "lock_timeout": "3s"}


class Movement(NamedTuple):
    """Which account gives how much to which."""

    origin: int
    target: int
    amount: int


class Wish(NamedTuple):
    """A wish that was committed."""

    key: str
    job_id: str
    movement: Movement


class Transfer(NamedTuple):
    """A transfer that was committed, with the claim of its handler."""

    key: str
    job_id: str
    run: int
    worker: str


@dataclass(frozen=True)
class Ledger:
    """The tables of the bank, as of one moment."""

    wishes: list[Wish] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    balances: Mapping[int, int] = field(default_factory=dict)


def movement_of(key: str) -> Movement:
    """Return what the wish with this key moves. Its producer and its handlers draw the same."""
    number = zlib.crc32(key.encode())
    origin = number % ACCOUNTS
    target = (origin + 1 + number // ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS
    return Movement(origin, target, 1 + number % _AMOUNTS)


async def install_bank(connection: Connection) -> None:
    """Create the tables and the role. The connection is a superuser's."""
    async with connection.transaction():
        await connection.execute(Path(__file__).with_name("bank.sql").read_text())
        await connection.execute(
            "INSERT INTO bank.accounts SELECT number, $1 FROM generate_series(0, $2 - 1) AS number",
            BALANCE,
            ACCOUNTS,
        )


async def read_ledger(connection: Connection) -> Ledger:
    """Return what the tables have now. Nothing, if the database has no bank."""
    if not await connection.fetchval("SELECT to_regclass('bank.wishes') IS NOT NULL"):
        return Ledger()
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        wishes = await connection.fetch("SELECT key, job_id::text, origin, target, amount FROM bank.wishes")
        transfers = await connection.fetch("SELECT key, job_id::text, run, worker FROM bank.transfers")
        accounts = await connection.fetch("SELECT id, balance FROM bank.accounts")
    return Ledger(
        [Wish(key, job_id, Movement(*movement)) for key, job_id, *movement in wishes],
        [Transfer(*row) for row in transfers],
        {row["id"]: row["balance"] for row in accounts},
    )
