"""A user with the role of a worker, who serves no topic, declares limits for topics and holds them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pulse
from faults.cast import REPLICAS, Replica
from faults.kinds.fault import STRANGER, Fault, Kind
from faults.limited_topics import LIMITED, METERED
from faults.operating import in_words
from faults.rules.strangers import HELD_FOR, LIMIT, STARTS
from faults.topics import MANY, URGENT
from pulse.v1 import pulse_pb2 as pb
from tests.access.counted_checks import hashed
from tests.eventually import eventually

if TYPE_CHECKING:
    from faults.world import World

# The server of the stranger knows one user. The others know none, and serve every caller of this machine.
_SERVER, _LINK = "guest-", f"{REPLICAS[-1]}~postgres"
_USER, _PASSWORD = "stranger", "let me in"
_TOPICS = ("mail", LIMITED, METERED, URGENT, MANY[0])
_SECONDS, _ROUND_SECONDS, _START_SECONDS = (2.0, 4.0), 0.5, 5.0
_PERIOD = timedelta(days=31)


def _strange(random: Random) -> Fault:
    how = {"topics": tuple(random.sample(_TOPICS, 2)), "number": random.randrange(10**6)}
    return Fault(STRANGER, random.uniform(*_SECONDS), frozenset(), how)


async def _declare(world: World, fault: Fault) -> None:
    users = {"PULSE_AUTH_USERS": f"{_USER}:{hashed(_PASSWORD)}:worker"}
    server = Replica(f"{_SERVER}{fault.how['number']}", world.ground, world.links[_LINK], users)
    server.begin()
    try:
        # The database may have a fault: then it ends, or comes too late.
        with suppress(AssertionError):
            await eventually(
                lambda: server.is_up or server.has_ended_itself, "the server starts", _START_SECONDS
            )
        with world.recorded(fault.kind, fault.target, **fault.how):
            if server.is_up:
                await _insist(world, server.address, fault)
    finally:
        server.kill()


async def _insist(world: World, address: str, fault: Fault) -> None:
    end = asyncio.get_running_loop().time() + fault.seconds
    async with pulse.Pulse(address, user=_USER, password=_PASSWORD) as stranger:
        while asyncio.get_running_loop().time() < end:
            for topic in fault.how["topics"]:
                await _limit_topic(world, stranger, topic)
            await asyncio.sleep(_ROUND_SECONDS)


async def _limit_topic(world: World, stranger: pulse.Pulse, topic: str) -> None:
    rate = pb.StartRate(starts=STARTS)
    rate.period.FromTimedelta(_PERIOD)
    declared = pb.DeclaredTopic(topic=topic, entries=pb.TopicEntries(running=LIMIT, rate=rate))
    request = pb.DeclareTopicsRequest(worker_id=_USER, topics=[declared])
    declare = world.history.operation("declare", topic=topic)
    try:
        await stranger._caller.call(lambda stub: stub.DeclareTopics, request, None)
        await stranger.hold(topic, HELD_FOR)
    except pulse.PulseError as error:
        declare.unknown(in_words(error))
    else:
        declare.done()


KINDS = [Kind("declarations", _strange, _declare, 1, 1.0 + _START_SECONDS)]
