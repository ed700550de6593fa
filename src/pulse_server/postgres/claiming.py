"""Claims of one topic, and claims across topics, which read more jobs and repeat. ADR-0045"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from itertools import count
from operator import itemgetter

from pulse_server.base.errors import PulseError
from pulse_server.database.connections import Connections
from pulse_server.database.statements import statements
from pulse_server.domain.jobs import ClaimedJob, Level
from pulse_server.domain.slots import Slots
from pulse_server.postgres.rows import Row, claimed_jobs_from_rows, level_columns

_SQL = statements("transitions/claims.sql")
# How many jobs a claim reads per slot: at first a few more than it needs. If servers that claim the
# same topics have locked them, it tries again with more, then with four times as many at each try.
# Another claim may have locked a thousand jobs.
_CANDIDATES_PER_SLOT = (1.125, 2)
_GROWTH = 4
_by_slot = itemgetter(0)


def slot_arguments(slots: Slots, lease: timedelta) -> list[object]:
    return [
        len(slots.order),
        [index + 1 for index in slots.order],
        list(slots.workers),
        list(slots.confirms),
        lease,
        slots.most_bytes,
        [index + 1 for index in slots.packed],
        slots.packed_bytes,
    ]


def claimed_jobs(rows: Sequence[Row], slots: Slots) -> list[ClaimedJob]:
    # RETURNING promises no order.
    return claimed_jobs_from_rows(sorted(rows, key=_by_slot), slots.workers)


async def claim_in_topic(
    connections: Connections,
    name: str,
    topics: Collection[str],
    slots: Slots,
    lease: timedelta,
    levels: Sequence[Level] | None,
) -> list[ClaimedJob]:
    """Lease the best jobs of one topic to the slots' workers, by full look or from these levels."""
    rows = await connections.fetch(name, _SQL[name], *_arguments(topics, slots, lease, levels))
    return claimed_jobs(rows, slots)


async def claim_across_topics(
    connections: Connections,
    name: str,
    topics: Collection[str],
    slots: Slots,
    lease: timedelta,
    levels: Sequence[Level] | None,
) -> list[ClaimedJob]:
    """Lease the best jobs of these topics to the slots' workers; fewer than slots if no more are
    ready.

    The first try reads only `levels`, if they are given. Tries go on until the slots are filled, or
    all ready jobs were among the candidates: the hub concludes from a free slot that none is left.
    """
    jobs: list[ClaimedJob] = []
    for per_slot in _candidates_per_slot():
        rest = _rest(slots, jobs)
        candidates, of_each = _candidates(
            len(slots.order) * per_slot, len(topics if levels is None else levels)
        )
        arguments = [*_arguments(topics, rest, lease, levels), candidates, of_each]
        levels = None
        try:
            # Under the name of the claim of a single topic: in metrics and logs they are the same.
            rows = await connections.fetch(name, _SQL["claim_across_topics"], *arguments)
        except PulseError:
            if not jobs:
                raise
            jobs[-1] = jobs[-1]._replace(age_seconds=None)  # they are leased; others may be ready
            break
        jobs += claimed_jobs([row[:-1] for row in rows if row["id"] is not None], rest)
        if slots.is_filled_by(jobs) or rows[0]["candidates"] < candidates:
            break
    return jobs


def _arguments(
    topics: Collection[str], slots: Slots, lease: timedelta, levels: Sequence[Level] | None
) -> list[object]:
    """The parameters of claim_batch. Without levels, the places are whole topics."""
    names, priorities, ages = (list(topics), None, None) if levels is None else level_columns(levels)
    return [names, *slot_arguments(slots, lease), priorities, ages]


def _rest(slots: Slots, jobs: Sequence[ClaimedJob]) -> Slots:
    if not jobs:
        return slots
    left = slots.most_bytes - sum(len(job.payload) for job in jobs)
    return slots._replace(order=slots.order[len(jobs) :], most_bytes=left, packed=())


def _candidates_per_slot() -> Iterator[float]:
    yield from _CANDIDATES_PER_SLOT
    yield from (_GROWTH**power for power in count(1))


def _candidates(jobs: float, topics: int) -> tuple[int, int]:
    """From how many jobs to choose, and how many of each topic to read first.

    The topic's share plus two more: this rarely makes a second look necessary, and for few topics.
    """
    candidates = math.ceil(jobs)
    return candidates, min(candidates, math.ceil(candidates / max(1, topics)) + 2)
