"""Notes in answers about topics that no worker takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.errors import Unauthenticated
from pulse_server.doors.boundary import SERVICE
from pulse_server.doors.callers import Callers, may_call
from pulse_server.service.unserved_topics import Note, UnservedTopics


class UnservedNotes:
    """The notes as the caller may read them: a role that may not list topics learns no other topic's name."""

    def __init__(self, unserved: UnservedTopics, callers: Callers) -> None:
        self._unserved = unserved
        self._callers = callers

    async def of_new(self, topics: Iterable[str], context: Any) -> list[pb.NoWorker]:
        """Return notes about topics that had no worker since the server started."""
        notes = await self._unserved.notes_of_new(topics)
        return [pb.NoWorker(topic=topic, note=self._text(note, context)) for topic, note in notes.items()]

    async def of(self, topic: str, context: Any) -> str:
        """Return a note if no worker takes the topic now, else nothing."""
        note = await self._unserved.note(topic)
        return "" if note is None else self._text(note, context)

    def _text(self, note: Note, context: Any) -> str:
        if not note.similar or not self._may_list_topics(context):
            return note.sentence
        return f"{note.sentence} Did you mean {note.similar!r}?"

    def _may_list_topics(self, context: Any) -> bool:
        try:
            return may_call(self._callers.of(context).role, f"/{SERVICE}/ListTopics")
        except Unauthenticated:
            return False  # the user was removed during the call, whose jobs are stored
