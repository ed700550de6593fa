"""Places in connected workers, kept free while a statement that may fill them is under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pulse_server.clock import awake_or_not
from pulse_server.dispatch.groups import Group
from pulse_server.dispatch.sessions import Session
from pulse_server.domain.jobs import ClaimedJob, NewJob
from pulse_server.repos.jobs import Taker


class Reservation:
    """One place, or none, for each of some jobs that are about to be stored."""

    def __init__(
        self,
        places: Sequence[Session | None],
        hand_out: Callable[[Sequence[Session], Sequence[ClaimedJob], float], None],
    ) -> None:
        self._places = [place for place in places if place is not None]
        self._hand_out = hand_out
        self._reserved_at = awake_or_not()
        _reserve(self._places, 1)
        self.takers = [
            None if place is None else Taker(place.worker_id, place.speaks_batches) for place in places
        ]

    def settle(self, taken: Sequence[ClaimedJob]) -> None:
        """Hand these jobs to the workers that took them. The other places are free again."""
        _reserve(self._places, -1)
        self._hand_out(self._places, taken, self._reserved_at)


@contextmanager
def reserved(places: Sequence[Session]) -> Iterator[None]:
    """Nobody else fills these places for as long as the block lasts."""
    _reserve(places, 1)
    try:
        yield
    finally:
        _reserve(places, -1)


def _reserve(places: Sequence[Session], sign: int) -> None:
    if len(places) == 1:  # as for most submits: a Counter would cost more than all the rest
        places[0].reserve(sign)
        return
    for session, count in Counter(places).items():
        session.reserve(sign * count)


def find_places(
    jobs: Sequence[NewJob], groups_for: Callable[[str], Iterator[Group]]
) -> tuple[list[Session | None], dict[Group, set[str]]]:
    """A place for each job that starts at once, in the first of the topic's groups that has one; the most
    urgent jobs first. Else None. And the groups that were chosen, with the topics for which they were."""
    rests: dict[Group, list[Session]] = {}
    lines: dict[str, Iterator[Group]] = {}
    first: dict[str, Group | None] = {}
    chosen: dict[Group, set[str]] = {}
    places: list[Session | None] = [None] * len(jobs)
    positions = [position for position, job in enumerate(jobs) if job.starts_at_once]
    for position in sorted(positions, key=lambda position: -jobs[position].priority):
        topic = jobs[position].topic
        if topic not in lines:
            lines[topic] = groups_for(topic)
            first[topic] = next(lines[topic], None)
        while (group := first[topic]) is not None:
            if group not in rests:
                rests[group] = group.places(len(jobs))[::-1]
            if rests[group]:
                places[position] = rests[group].pop()
                chosen.setdefault(group, set()).add(topic)
                break
            first[topic] = next(lines[topic], None)
    return places, chosen
