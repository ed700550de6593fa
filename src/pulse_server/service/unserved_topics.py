"""Topics that no worker takes: a note for the callers that enqueue, schedule or wait for their jobs.

Workers of all servers count. A worker of another server counts once that server has recorded it, within
seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from itertools import islice
from typing import NamedTuple

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import lease_clock
from pulse_server.base.sharing import Sample
from pulse_server.dispatch.roster import Demand

# Workers connect again within this time after the start of a server.
START_GRACE = timedelta(seconds=5)
# A caller waits this long for the workers of the other servers. Without them it gets no note.
LOOK_TIMEOUT = timedelta(milliseconds=200)
# How long a note is kept, and how many are.
NOTE_AGE = timedelta(seconds=1)
MOST_KEPT = 1000
# Notes in one answer. Names that are compared with the name of a topic: some 10 µs each.
MOST_NOTES = 3
MOST_COMPARED = 200
_MOST_LETTERS_APART = 3
_SIMILAR = 0.75


class Note(NamedTuple):
    """No worker takes a topic."""

    sentence: str
    similar: str
    """A topic that workers take, if it has a similar name."""


class UnservedTopics:
    def __init__(
        self,
        demand: Demand,
        workers_by_topic: Callable[[], Awaitable[Mapping[str, int]]],
        *,
        clock: Callable[[], float] = lease_clock,
        start_grace: timedelta = START_GRACE,
    ) -> None:
        """`workers_by_topic` counts the workers of all servers."""
        self._demand = demand
        self._sample = Sample(workers_by_topic, clock, to_its_end=True)
        self._clock = clock
        # By topic, with the moment of its look: a note costs more than the rest of a submit.
        self._notes: dict[str, tuple[float, Note | None]] = {}
        self._quiet_until = clock() + start_grace.total_seconds()

    async def note(self, topic: str) -> Note | None:
        """Return a note if no worker takes the topic now."""
        return None if self._demand.is_wanted(topic) else await self._note(topic)

    async def notes_of_new(self, topics: Iterable[str]) -> dict[str, Note]:
        """Return a note for each topic that had no worker since this server started, a few at the most.

        During a deploy a topic may be without workers for a moment. That is not noted here.
        """
        was_wanted = self._demand.was_wanted
        unknown = list(islice((topic for topic in topics if topic not in was_wanted), MOST_NOTES))
        if not unknown or self._clock() < self._quiet_until:
            return {}
        return {topic: note for topic in unknown if (note := await self._note(topic))}

    async def _note(self, topic: str) -> Note | None:
        """Return the note, from the last second or new. Workers of this server are not looked at."""
        now = self._clock()
        noted_at, note = self._notes.get(topic, (-math.inf, None))
        if now - noted_at < NOTE_AGE.total_seconds():
            return note
        try:
            async with asyncio.timeout(LOOK_TIMEOUT.total_seconds()):
                served = await self._sample.get()
        except (PulseError, TimeoutError):
            served = {topic: 1}  # kept, too: behind a slow database every submit would wait for the look
        if len(self._notes) >= MOST_KEPT:
            self._notes.clear()
        note = None if topic in served else _note_of(topic, served)
        self._notes[topic] = self._clock(), note
        return note


def similar_topic(topic: str, served: Iterable[str]) -> str:
    """Return the served topic whose name is most similar, or "" if none is."""
    near = (name for name in served if abs(len(name) - len(topic)) <= _MOST_LETTERS_APART)
    similar = get_close_matches(topic, islice(near, MOST_COMPARED), n=1, cutoff=_SIMILAR)
    return similar[0] if similar else ""


def _note_of(topic: str, served: Iterable[str]) -> Note:
    sentence = f"No worker that takes {topic!r} is connected: its jobs wait until one is."
    return Note(sentence, similar_topic(topic, served))
