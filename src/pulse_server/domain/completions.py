"""The jobs that one statement completed, by topic and not one by one: a batch may have a thousand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from typing import NamedTuple

from pulse_server.domain.jobs import Claim


class TopicCompletions(NamedTuple):
    """Completed jobs of one topic: how long each attempt took, and where its claim was in the request."""

    topic: str
    ran_seconds: Sequence[float]
    places: Sequence[int]
    """Counted from 1, in the order of `ran_seconds`."""
    in_workflows: bool = False
    """Whether a job belongs to a workflow, which then has a notice."""


class Completions(Set[Claim]):
    """The requested claims that counted: at most one per job.

    The set is built when it is read. That is rare: usually every claim counted and nothing watches.
    """

    def __init__(self, requested: Sequence[Claim], by_topic: Sequence[TopicCompletions]) -> None:
        self._requested = requested
        self.by_topic = by_topic

    def with_topics(self) -> Iterator[tuple[Claim, str]]:
        requested = self._requested
        for topic, _, places, _ in self.by_topic:
            for place in places:
                yield requested[place - 1], topic

    def __len__(self) -> int:
        return sum([len(of_topic.places) for of_topic in self.by_topic])

    def __iter__(self) -> Iterator[Claim]:
        return (claim for claim, _ in self.with_topics())

    def __contains__(self, claim: object) -> bool:
        return claim in self._claims

    @cached_property
    def _claims(self) -> frozenset[Claim]:
        return frozenset(self)


NO_COMPLETIONS = Completions((), ())
