"""Logs the server's notes about topics that no worker takes."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

logger = logging.getLogger("pulse.topics")


class UnservedTopics:
    """The topics of one connection that were logged."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def warn(self, notes: Iterable[pb.NoWorker], *, own: Container[str] = ()) -> None:
        """Log each topic once. Topics that this client is about to serve (`own`) are left out."""
        for note in notes:
            if note.topic not in self._logged and note.topic not in own:
                self._logged.add(note.topic)
                logger.warning("%s", note.note)
