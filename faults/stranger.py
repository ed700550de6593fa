"""Roles of the database that are not ours, and what they can find out from outside.

Nothing here knows the name of a channel, the key of a lock or the arguments of a function. A stranger tries
every word of the published source and of the functions' texts, which each role may read, and reads pg_locks.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pulse_server
from faults.audit import Connection

STRANGER_ROLE, APPLICATION_ROLE = "stranger", "shop"
# What docs/reference/sql.md has an administrator grant to an application and to the handlers of a worker.
_ROLES = f"""
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{STRANGER_ROLE}') THEN
        CREATE ROLE {STRANGER_ROLE} LOGIN;
        CREATE ROLE {APPLICATION_ROLE} LOGIN;
        GRANT USAGE ON SCHEMA pulse TO {APPLICATION_ROLE};
        GRANT EXECUTE ON FUNCTION pulse.enqueue, pulse.complete_job TO {APPLICATION_ROLE};
    END IF;
END
$$
"""
_TEXTS = """
SELECT proc.prosrc FROM pg_proc AS proc JOIN pg_namespace AS space ON space.oid = proc.pronamespace
WHERE space.nspname = 'pulse'
"""
_ARGUMENTS = """
SELECT proc.proname AS name, proc.proargnames[: proc.pronargs] AS names,
       proc.proargtypes::regtype[]::text[] AS types
FROM pg_proc AS proc JOIN pg_namespace AS space ON space.oid = proc.pronamespace
WHERE space.nspname = 'pulse' AND proc.proname LIKE $1
"""
_HELD = """
SELECT DISTINCT classid::bigint, objid::bigint, objsubid FROM pg_locks
WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_WORD = re.compile(r"""['"]([a-z][a-z0-9_]{3,62})['"]""")
_KEY = re.compile(r"\b(?:0x[0-9A-F]{6,16}|\d{6,19})\b")
_DEEP = 2_500
_MOST_BYTES = 7_990


class KnownClaim(NamedTuple):
    """A claim, as a dashboard or a log shows it."""

    job_id: str
    worker: str
    run: int


class LockKey(NamedTuple):
    """An advisory lock, as pg_locks shows it."""

    high: int
    low: int
    kind: int

    @property
    def arguments(self) -> tuple[int, ...]:
        """The arguments of pg_advisory_lock: one bigint, or two integers."""
        if self.kind == 1:
            return (_signed(self.high << 32 | self.low, 64),)
        return _signed(self.high, 32), _signed(self.low, 32)


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >= 1 << (bits - 1) else number


async def make_roles(superuser: Connection) -> None:
    await superuser.execute(_ROLES)


async def known_claims(superuser: Connection, most: int) -> list[KnownClaim]:
    rows = await superuser.fetch(
        "SELECT id::text, locked_by, run FROM pulse.jobs WHERE status = 'RUNNING' ORDER BY random() LIMIT $1",
        most,
    )
    return [KnownClaim(*row) for row in rows]


async def words(session: Connection) -> list[str]:
    """Every word that may be the name of a channel."""
    texts = [row[0] for row in await session.fetch(_TEXTS)]
    return sorted({word for text in (*texts, *_published()) for word in _WORD.findall(text)})


async def lock_keys(session: Connection) -> set[LockKey]:
    """The advisory locks that others hold or wait for now."""
    return {LockKey(*row) for row in await session.fetch(_HELD)}


def published_keys() -> set[LockKey]:
    """The numbers that stand in the published source beside an advisory lock."""
    lines = (
        line for text in _published() for line in text.splitlines() if "advisory" in line or "LOCK" in line
    )
    numbers = {int(number, 0) for line in lines for number in _KEY.findall(line)}
    return {LockKey(number >> 32, number & 0xFFFFFFFF, 1) for number in numbers if number < 1 << 63}


@cache
def _published() -> tuple[str, ...]:
    source = Path(pulse_server.__file__).parent / "database"
    return tuple(path.read_text() for path in sorted(source.rglob("*")) if path.suffix in (".py", ".sql"))


# ---------------------------------------------------------------- messages


def malformed() -> Iterator[str]:
    """Texts that no server sent."""
    yield from ("", "x", "[]", "null", "1e999", '"\\ud800"', "{", "{}", '{"a":' * (_DEEP // 2))
    yield from ("[" * _DEEP, "[" * _DEEP + "]" * _DEEP, "9" * _MOST_BYTES)


def forged(heard: str, claims: list[KnownClaim], random: Random) -> Iterator[str]:
    """Messages made of one that was heard: as it is, about other claims, and with wrong values."""
    yield heard
    try:
        message = json.loads(heard)
    except ValueError:
        return
    if not isinstance(message, dict):
        return
    lists = [key for key, value in message.items() if isinstance(value, list)]
    for key in lists:
        yield _text(message | {key: [list(claim) for claim in claims]})
        yield _text(message | {key: [random.choice(_WRONG) for _ in range(4)]})
    for key in message:
        yield _text(message | {key: random.choice(_WRONG)})
        yield _text({name: value for name, value in message.items() if name != key})


_WRONG: tuple[Any, ...] = (
    *(None, -1, 10**30, 1.5, "x", "", True, [], {}, [[]], [["x"]], [[None] * 3], {"a": [1]}),
    *(
        "x" * 5_000,
        [["00000000-0000-0000-0000-000000000000", "worker-1", -1]],
        [[{}, {}, {}]],
        [float("nan")],
    ),
)


def _text(message: object) -> str:
    return json.dumps(message, separators=(",", ":"))[:_MOST_BYTES]


# ---------------------------------------------------------------- functions


async def forgeries(session: Connection, name: str, claim: KnownClaim) -> list[tuple[str, list[Any]]]:
    """Calls of the function in every way that its arguments allow: all known of the claim, and nothing else.

    Each is a statement with its arguments. What is not known is guessed, left out, or null.
    """
    calls = []
    for row in await session.fetch(_ARGUMENTS, name):
        known = {"uuid": claim.job_id, "text": claim.worker, "integer": claim.run, "bytea": b'"forged"'}
        guesses = {"bytea": secrets.token_bytes(16), "text": secrets.token_hex(16)}
        seen: set[str] = set()
        values: list[Any] = []
        for kind in row["types"]:
            values.append(known.get(kind) if kind not in seen else guesses.get(kind))
            seen.add(kind)
        for given in (values, [*values[:3]], [*values[:3], *([None] * (len(values) - 3))]):
            places = ", ".join(
                f"{argument} => ${place}::{kind}"
                for place, (argument, kind) in enumerate(
                    zip(row["names"], row["types"], strict=True), start=1
                )
                if place <= len(given)
            )
            calls.append((f"SELECT pulse.{row['name']}({places})", given))
    return calls
