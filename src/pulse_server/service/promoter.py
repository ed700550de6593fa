"""Makes delayed and retried jobs ready when their time has come."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from pulse_server.base.loops import Loop, lease_clock
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.rules import Level
from pulse_server.jobs.store import PostgresJobRepo

# The longest that a due job waits for the promoter; usually it sleeps exactly until the next one is due.
PROMOTE_INTERVAL = timedelta(milliseconds=500)
PROMOTE_BATCH = 1000
# No tighter than this, or a stream of jobs due a millisecond apart would make it spin.
PROMOTE_SHORTEST_SLEEP = timedelta(milliseconds=20)
# While more is due than a batch: how many jobs each topic gets in its turn, and how many topics one statement
# looks at, due or not, at 5 µs each (docs/adr/0047).
PROMOTE_SHARE = 20
PROMOTE_TOPICS = 2000


class Promoter:
    """Sleeps until the next job is due, at most for its interval: earlier jobs may be submitted.

    While more jobs are due than fit into a batch, topics take turns. A walk over the topics follows
    each batch, so that no topic waits for the whole backlog of another. ADR-0047
    """

    def __init__(self, repo: PostgresJobRepo, publisher: Publisher, *, interval: timedelta) -> None:
        self._repo = repo
        self._publisher = publisher
        self._interval = interval
        self._last_topic = ""
        self.loop = Loop("promoter", self.tick, interval)

    async def tick(self) -> timedelta:
        while True:
            sent_at = lease_clock()
            promotion = await self._repo.promote_due(PROMOTE_BATCH)
            self._publisher.promoted(promotion.topics, _older(promotion.levels, sent_at), promotion.promoted)
            if promotion.promoted < PROMOTE_BATCH:
                break
            await self._take_turns()
        if promotion.next_due_in is None:
            return self._interval
        return max(PROMOTE_SHORTEST_SLEEP, min(self._interval, promotion.next_due_in))

    async def _take_turns(self) -> None:
        sent_at = lease_clock()
        turn = await self._repo.promote_in_turn(
            PROMOTE_BATCH,
            of_each_topic=PROMOTE_SHARE,
            after_topic=self._last_topic,
            topics_looked_at=PROMOTE_TOPICS,
        )
        self._publisher.promoted(turn.topics, _older(turn.levels, sent_at), PROMOTE_BATCH)
        self._last_topic = turn.last_topic


def _older(levels: Iterable[Level], sent_at: float) -> list[Level]:
    """The levels as they are now. Their ages are of when the statement began, which was later than this."""
    seconds = lease_clock() - sent_at
    return [level._replace(age_seconds=level.age_seconds + seconds) for level in levels]
