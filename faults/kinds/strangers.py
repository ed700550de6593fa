"""Roles of others in the database: one may only connect, and an application reports what is not its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import asyncpg

from faults.audit import Connection
from faults.bystanders import FORGER, INTRUDER
from faults.kinds.fault import Fault, Kind
from faults.stranger import (
    APPLICATION_ROLE,
    STRANGER_ROLE,
    forged,
    forgeries,
    known_claims,
    lock_keys,
    make_roles,
    malformed,
    published_keys,
    words,
)

if TYPE_CHECKING:
    from faults.world import World

_TARGET = "stranger of the database"
_SECONDS = (5.0, 9.0)
# What the role does besides listening.
_DEEDS = ("forge", "garble", "lock", "all")
_ROUND_SECONDS, _KEYS_SECONDS = 0.05, 0.005
_CLAIMS, _MESSAGES, _REMEMBERED = 30, 40, 200
_REFUSED = (asyncpg.PostgresError,)


def _intruding(random: Random) -> Fault:
    how = {"deed": random.choice(_DEEDS), "seed": random.randrange(2**31)}
    return Fault(_TARGET, random.uniform(*_SECONDS), frozenset(), how)


def _forging(random: Random) -> Fault:
    return Fault(_TARGET, random.uniform(*_SECONDS), frozenset())


async def _intrude(world: World, fault: Fault) -> None:
    deed = fault.how["deed"]
    async with world.cluster.session() as superuser:
        await make_roles(superuser)
        async with world.cluster.session(STRANGER_ROLE) as stranger:
            with world.recorded(fault.kind, fault.target, **fault.how):
                tasks = []
                if deed in ("forge", "garble", "all"):
                    tasks.append(_speak(superuser, stranger, fault))
                if deed in ("lock", "all"):
                    tasks.append(_lock(world, fault.seconds))
                await asyncio.gather(*tasks)


async def _speak(superuser: Connection, stranger: Connection, fault: Fault) -> None:
    """Listen everywhere, and send on each channel what was heard on any, in other words."""
    random = Random(fault.how["seed"])
    heard: dict[str, list[str]] = {}

    def hear(_connection: Any, pid: int, channel: str, payload: object) -> None:
        if pid != stranger.get_server_pid():
            heard.setdefault(channel, []).append(str(payload))
            del heard[channel][:-_REMEMBERED]

    channels = await words(stranger)
    for channel in channels:
        await stranger.add_listener(channel, hear)
    now = asyncio.get_running_loop().time
    end = now() + fault.seconds
    while now() < end:
        claims = await known_claims(superuser, _CLAIMS)
        # A channel on which nothing was heard may still be one that others listen to.
        for channel in list(heard) or random.sample(channels, min(len(channels), 5)):
            texts = list(malformed()) if fault.how["deed"] != "forge" else []
            if fault.how["deed"] != "garble":
                texts += [
                    text for said in heard.get(channel, [])[-3:] for text in forged(said, claims, random)
                ]
            for text in random.sample(texts, min(len(texts), _MESSAGES)):
                with suppress(*_REFUSED, ValueError):
                    await stranger.execute("SELECT pg_notify($1, $2)", channel, text)
        await asyncio.sleep(_ROUND_SECONDS)


async def _lock(world: World, seconds: float) -> None:
    """Take every advisory lock that others were seen with, and those of the published source."""
    now = asyncio.get_running_loop().time
    end = now() + seconds
    async with (
        world.cluster.session(STRANGER_ROLE) as looking,
        world.cluster.session(STRANGER_ROLE) as holding,
    ):
        taken: set[Any] = set()
        seen: set[Any] = set(published_keys())
        while now() < end:
            seen |= await lock_keys(looking)
            for key in seen - taken:
                places = ", ".join(f"${place}" for place in range(1, len(key.arguments) + 1))
                if await holding.fetchval(f"SELECT pg_try_advisory_lock({places})", *key.arguments):
                    taken.add(key)
            await asyncio.sleep(_KEYS_SECONDS)


async def _forge(world: World, fault: Fault) -> None:
    """Complete the jobs of others: what is known of their claims is right, and the result is not."""
    async with world.cluster.session() as superuser:
        await make_roles(superuser)
        async with world.cluster.session(APPLICATION_ROLE) as application:
            with world.recorded(fault.kind, fault.target):
                now = asyncio.get_running_loop().time
                end = now() + fault.seconds
                while now() < end:
                    for claim in await known_claims(superuser, _CLAIMS):
                        for statement, arguments in await forgeries(application, "complete_job%", claim):
                            with suppress(*_REFUSED):
                                await application.execute(statement, *arguments)
                    await asyncio.sleep(_ROUND_SECONDS)


KINDS = [
    Kind(INTRUDER, _intruding, _intrude, 3),
    Kind(FORGER, _forging, _forge, 1),
]
