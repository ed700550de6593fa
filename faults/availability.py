"""When a worker could have claimed a job, and when a fault, a pause or a limit stood in the way.

Times are by the database's clock, in microseconds. A worker that had a fault can claim again once it has
claimed something, or after _BACK at the latest. Behind a fault of the database a server rests between two
full looks, for as long as LONGEST_REST_SECONDS.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING

from faults.changes import CLAIMS, LimitEvent
from faults.disturbances import SLOW, STALL, Span
from faults.spans import FOR_EVER, LONG_AGO, SECOND, Spans, where_full
from pulse_server.base.tuning import SAMPLE_REST
from pulse_server.dispatch.hub import LONGEST_REST_SECONDS

if TYPE_CHECKING:
    from faults.evidence import Evidence

_BACK = 15 * SECOND
# Until every server has read a pause, a limit or its end, and until a new connection claims.
_KNOWN = 2 * SECOND
# Of a statement, or a process without CPU time, that is no part of the usual noise.
_NOTED = SECOND // 10
_NOTHING = Spans()
_REST = int(LONGEST_REST_SECONDS * SECOND)


class Availability:
    """Answers from when on nothing stood between a worker and a job."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._disturbances = evidence.disturbances
        self.worker = cache(self._worker)
        self.taken = cache(self._taken)
        self.topic = cache(self._topic)
        self.not_plain = cache(self._not_plain)
        self.not_by_priority = cache(self._not_by_priority)
        self.paused = cache(self._paused)

    # ------------------------------------------------------------ what stands in the way

    def _worker(self, worker_id: str) -> Spans:
        """When it was not there, or it, its connections or its server had a fault."""
        outages: list[tuple[int, int]] = []
        before = LONG_AGO
        for began, ended in self._disturbances.lives(worker_id):
            outages.append((before, self._earliest(began)))
            before = self._earliest(ended)
        outages.append((before, FOR_EVER))
        faults = self._disturbances.of_worker(worker_id, 0, FOR_EVER)
        outages += [self._span(fault) for fault in faults if fault.kind != STALL]
        claims = self._claims.get(worker_id, [])
        return Spans((begin, _first_after(claims, end)) for begin, end in outages)

    def _taken(self, worker_id: str) -> Spans:
        """When it could take no job, for one of these reasons or because its slots were full.

        A slot is free if neither a claim nor a handler that runs has it.
        """
        concurrency = self._disturbances.least_concurrency(worker_id)
        held = where_full(self._held.get(worker_id, ()), concurrency)
        return self.worker(worker_id) | held | where_full(self._running.get(worker_id, ()), concurrency)

    def _topic(self, topic: str) -> Spans:
        """When no worker could claim jobs of the topic, or whether one could is not known."""
        return self.database | self.paused(topic) | self.not_plain(topic)

    @cached_property
    def database(self) -> Spans:
        """When it had a fault, or all servers were away, and what follows from it."""
        spans = []
        for fault in self._disturbances.of_database(0, FOR_EVER):
            moves = fault.kind == SLOW and not fault.facts.get("too_slow")
            if not moves and "ids" not in fault.facts:
                begin, end = self._span(fault)
                spans.append((begin, end + min(SAMPLE_REST * (end - begin), _REST) + _KNOWN))
        for away in self._disturbances.away:
            begin, end = self._span(away)
            spans.append((begin, end + _BACK))
        return Spans(spans)

    def _paused(self, topic: str) -> Spans:
        """When dispatch of the topic, or of everything, was paused."""
        return self._switched(topic) | self._switched("")

    def _not_plain(self, topic: str) -> Spans:
        """When the topic had limits."""
        return Spans((begin, end + _KNOWN) for begin, end, _ in self._policies(topic))

    def _not_by_priority(self, topic: str) -> Spans:
        """When it had none, or such that its jobs start in another order than that of their priorities."""
        limited = [
            (begin + _KNOWN, end)
            for begin, end, facts in self._policies(topic)
            if not (facts.get("laned") or facts.get("ages") or facts.get("ordered"))
        ]
        return Spans(Spans(limited).gaps(LONG_AGO, FOR_EVER))

    def locked(self, job_id: str) -> Spans:
        """When another session held a lock on its row."""
        return self._locked.get(job_id, _NOTHING)

    def slowest(self, begin: int, end: int) -> int:
        """The longest statement, or stall of a process, of that time."""
        seconds = range(begin // SECOND, end // SECOND + 1)
        return max((self._slow.get(second, 0) for second in seconds), default=0)

    def topics(self, worker_id: str) -> frozenset[str]:
        return self._disturbances.topics(worker_id)

    @cached_property
    def workers(self) -> list[str]:
        return self._disturbances.workers

    # ------------------------------------------------------------ how

    @cached_property
    def _claims(self) -> dict[str, list[int]]:
        """The times at which each worker got a job, in their order."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for life in self._evidence.lives.values():
            for verb, change in life:
                if verb in CLAIMS and change.new is not None and change.new.locked_by is not None:
                    found[change.new.locked_by].append(change.at)
        return {worker_id: sorted(times) for worker_id, times in found.items()}

    @cached_property
    def _held(self) -> dict[str, list[tuple[int, int]]]:
        """When each worker got jobs, and when it had one less."""
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for life in self._evidence.lives.values():
            for _, change in life:
                before = change.old and change.old.locked_by
                after = change.new and change.new.locked_by
                if before != after:
                    if after:
                        found[after].append((change.statement_at, 1))
                    if before:
                        found[before].append((change.committed or change.at, -1))
        return dict(found)

    @cached_property
    def _running(self) -> dict[str, list[tuple[int, int]]]:
        """When handlers of each worker began and ended."""
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for executions in self._evidence.executions.values():
            for run in executions:
                found[run.worker].append((self._earliest(run.t), 1))
                if run.ended is not None:
                    found[run.worker].append((self._latest(run.ended), -1))
        return dict(found)

    def _switched(self, topic: str) -> Spans:
        spans, since = [], None
        for change in self._evidence.audit.switches:
            if change.topic == topic and change.paused and since is None:
                since = change.statement_at
            elif change.topic == topic and not change.paused and since is not None:
                spans.append((since, change.at + _KNOWN))
                since = None
        return Spans([*spans, (since, FOR_EVER)] if since is not None else spans)

    def _policies(self, topic: str) -> Iterator[tuple[int, int, dict[str, object]]]:
        changes = self._policy_changes.get(topic, [])
        ends = [*(event.at for event in changes[1:]), FOR_EVER]
        for event, end in zip(changes, ends, strict=True) if changes else ():
            if event.facts is not None:
                yield event.statement_at, end, event.facts

    @cached_property
    def _policy_changes(self) -> dict[str, list[LimitEvent]]:
        found: defaultdict[str, list[LimitEvent]] = defaultdict(list)
        for event in self._evidence.audit.limits:
            if event.what == "policy":
                found[event.name].append(event)
        return dict(found)

    @cached_property
    def _locked(self) -> dict[str, Spans]:
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for fault in self._disturbances.of_database(0, FOR_EVER):
            for job_id in fault.facts.get("ids", ()):
                begin, end = self._span(fault)
                found[job_id].append((begin - _KNOWN, end + _KNOWN))
        return {job_id: Spans(spans) for job_id, spans in found.items()}

    @cached_property
    def _slow(self) -> dict[int, int]:
        """By the second: the longest statement or stall that it is a part of."""
        found: defaultdict[int, int] = defaultdict(int)
        for begin, length in self._lengths():
            if _NOTED < length < FOR_EVER // 2:
                for second in range(begin // SECOND, (begin + length) // SECOND + 1):
                    found[second] = max(found[second], length)
        return dict(found)

    def _lengths(self) -> Iterator[tuple[int, int]]:
        for change in self._evidence.audit.jobs:
            yield change.statement_at, (change.committed or change.at) - change.statement_at
        for stall in self._disturbances.stalls:
            begin, end = self._span(stall)
            yield begin, end - begin
        last = max((change.at for change in self._evidence.audit.jobs), default=0)
        for fault in self._disturbances.of_database(0, FOR_EVER):
            if fault.kind == SLOW:
                seconds = int(fault.facts["seconds"] * SECOND)
                begin, end = self._span(fault)
                # It is part of every statement: of each second of the fault, and of a while after it.
                yield from ((moment, seconds) for moment in range(begin, min(end + _KNOWN, last), SECOND))

    def _span(self, fault: Span) -> tuple[int, int]:
        return self._earliest(fault.begin), self._latest(fault.end)

    def _earliest(self, t: int) -> int:
        return t if t >= FOR_EVER else self._evidence.clock.earliest(t)

    def _latest(self, t: int) -> int:
        return t if t >= FOR_EVER else self._evidence.clock.latest(t)


def _first_after(claims: list[int], end: int) -> int:
    """When a worker whose fault was over then has claimed, or certainly could."""
    place = bisect_right(claims, end)
    return min(claims[place] if place < len(claims) else FOR_EVER, end + _BACK)
