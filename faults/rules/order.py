"""I24: no start at a priority while a better job of a topic that this worker takes has long been ready.

And among equals, part of I25: a worker that gets a free slot takes no later job while an earlier one has
waited for the bound of progress. A claim is judged by what was ready before its statement began, and still is
when it has taken its rows. Topics with limits are claimed apart: their jobs are compared within the topic, if
priorities decide there.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from faults.changes import CLAIMS, JobChange
from faults.evidence import Evidence
from faults.rules.moving import PROGRESS, exceeds
from faults.spans import SECOND
from faults.violations import Violation
from faults.waits import Ready

BEST_FIRST = "no job starts while a better one has been ready for more than 2 s"
EARLIEST_FIRST = "a worker that gets a free slot takes no later job while an earlier one has waited for 10 s"

ORDER = 2 * SECOND
# Two jobs that are stored at the same moment may start in either order.
_SAME_MOMENT = SECOND // 20


class _Waiting(NamedTuple):
    """In the order of claims."""

    rank: int  # the priority, negative
    submitted_at: int
    ready: Ready


class _Claim(NamedTuple):
    statement_at: int
    change: JobChange
    worker_id: str
    priority: int
    submitted_at: int


def check_order(evidence: Evidence) -> Iterator[Violation]:
    """I24, and what I25 says of jobs of the same priority."""
    return _Order(evidence).check()


class _Order:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._availability = evidence.availability
        self._long_ready: defaultdict[str, list[_Waiting]] = defaultdict(list)

    def check(self) -> Iterator[Violation]:
        """Go through the claims by the beginnings of their statements, with what was ready before each."""
        stretches = sorted(stretch for wait in self._evidence.waits for stretch in wait.stretches)
        place = 0
        for claim in sorted(_claims(self._evidence), key=lambda claim: claim.statement_at):
            while place < len(stretches) and stretches[place].begin + ORDER < claim.statement_at:
                ready = stretches[place]
                if ready.end > claim.statement_at:
                    insort(
                        self._long_ready[ready.topic], _Waiting(-ready.priority, ready.submitted_at, ready)
                    )
                place += 1
            yield from self._check_claim(claim)

    def _check_claim(self, claim: _Claim) -> Iterator[Violation]:
        """At most one violation for each claim."""
        own, moment, availability = claim.change.topic, claim.statement_at, self._availability
        clear = max(
            availability.worker(claim.worker_id).clear_since(moment),
            availability.database.clear_since(moment),
        )
        if moment - clear <= ORDER:
            return
        is_plain = availability.not_plain(own).clear_since(moment) < moment
        others = availability.topics(claim.worker_id) if is_plain else {own}
        for topic in others & self._long_ready.keys():
            kept = availability.not_plain(topic) if is_plain else availability.not_by_priority(topic)
            in_the_way = (kept, availability.paused(topic))
            since = max(clear, *(spans.clear_since(moment) for spans in in_the_way))
            for waiting in self._before(topic, claim):
                if (found := self._judge(claim, waiting.ready, since)) is not None:
                    yield found
                    return

    def _before(self, topic: str, claim: _Claim) -> Iterator[_Waiting]:
        """The jobs of the topic that come before the claimed one, and were ready all the time."""
        waiting = self._long_ready[topic]
        while waiting and waiting[0].ready.end <= claim.statement_at:
            del waiting[0]
        if not waiting:
            del self._long_ready[topic]
        for each in waiting:
            if (each.rank, each.submitted_at + _SAME_MOMENT) >= (-claim.priority, claim.submitted_at):
                return
            if each.ready.end > claim.change.at:
                yield each

    def _judge(self, claim: _Claim, job: Ready, clear: int) -> Violation | None:
        """`clear` is since when nothing stood between the worker and the topic of the job."""
        moment, availability = claim.statement_at, self._availability
        is_better = job.priority > claim.priority
        since = max(job.begin, clear, availability.locked(job.job_id).clear_since(moment))
        bound = ORDER if is_better else PROGRESS
        if not exceeds(availability, bound, since, moment):
            return None
        what = (
            f"{claim.worker_id} got a {claim.change.topic} job of priority {claim.priority} while a "
            f"{job.topic} job of priority {job.priority}, which it takes too, had been ready for "
            f"{(moment - since) / SECOND:.3f} s."
        )
        number, rule = ("I24", BEST_FIRST) if is_better else ("I25", EARLIEST_FIRST)
        change = claim.change
        others = (change.job_id,)
        return Violation(number, rule, what, job.job_id, at=change.at, seq=change.seq, others=others)


def _claims(evidence: Evidence) -> Iterator[_Claim]:
    for life in evidence.lives.values():
        first = life[0].change
        submitted_at = first.at if first.submitted_at is None else first.submitted_at
        for verb, change in life:
            if verb in CLAIMS and change.new is not None and change.new.locked_by is not None:
                yield _Claim(
                    change.statement_at, change, change.new.locked_by, change.new.priority, submitted_at
                )
