"""The faults of a run by process and link, read from the history."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from faults.history import FREEZE, Event

# Faults of the database, and other sessions that lock its rows.
_DATABASE = ("postgres", "rows")
_SERVER = "pulsed-"
# All servers are away at once: no server reaps meanwhile.
AWAY = "away"
ALL_SERVERS = "all servers"
# A process that got no CPU time, as it recorded itself.
STALL = "stall"
# The database answers every statement late.
SLOW = "slow"
# Another session locks a partition without any job of the run.
OLD_DAY = "old day"
# After these the process itself is gone; another one takes its place.
_FATAL = frozenset({"kill", "stop"})
_ENDS = _FATAL | {"ending", "gone"}
# Present from the start of a process, and harmless.
_HARMLESS = frozenset({"skew"})
# A process that is stopped makes no progress.
_STILL = frozenset({FREEZE, STALL})
# Until a restarted server serves, and until no more claims can be made for a broken stream.
_RETURN_NS = 5 * 10**9
_FOR_EVER = 1 << 62


@dataclass(frozen=True)
class Span:
    """When a fault began and ended, in nanoseconds of the history."""

    begin: int
    end: int
    kind: str
    target: str
    facts: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    def touches(self, begin: int, end: int) -> bool:
        return self.begin <= end and begin <= self.end


@dataclass
class _Process:
    """One life in a place: worker-3.2 is the second in worker-3."""

    name: str
    began: int = 0
    worker_id: str = ""
    concurrency: int = 0
    topics: frozenset[str] = frozenset()
    replicas: list[tuple[int, str]] = field(default_factory=list)  # since when its connections lead to which
    over: int = _FOR_EVER
    spans: list[Span] = field(default_factory=list)

    @property
    def place(self) -> str:
        return self.name.partition(".")[0]


class Disturbances:
    """Answers which faults affected a worker, or its path to the database, within a span."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._processes: dict[str, _Process] = {}
        self._of_worker: defaultdict[str, list[_Process]] = defaultdict(list)
        self._places: defaultdict[str, list[_Process]] = defaultdict(list)
        self._links: defaultdict[str, list[Span]] = defaultdict(list)
        self.away: list[Span] = []
        self._of_database: list[Span] = []
        self._read(events)

    # ------------------------------------------------------------ what the rules ask for

    def of_process(self, worker_id: str, begin: int, end: int) -> list[Span]:
        """Kills, stops, freezes, failpoints and stalls of the processes of this name."""
        lives = self._of_worker.get(worker_id) or [self._processes.get(worker_id, _Process(worker_id))]
        return [span for life in lives for span in self._spans_of(life) if span.touches(begin, end)]

    def of_link(self, worker_id: str, begin: int, end: int) -> list[Span]:
        """The faults of the connections between the worker and its server."""
        places = {life.place for life in self._of_worker.get(worker_id, ())}
        spans = [span for place in places for span in self._links.get(f"{place}~pulsed", ())]
        return [span for span in spans if span.touches(begin, end)]

    def of_servers(self, worker_id: str, begin: int, end: int) -> list[Span]:
        """The faults of the servers that the worker was connected to, and of their connections."""
        return [
            span
            for life in self._of_worker.get(worker_id, ())
            for since, until, replica in _segments(life.replicas)
            if since <= end and begin <= until
            for span in self._of_server(replica)
            if span.touches(max(since, begin), min(until, end))
        ]

    def of_database(self, begin: int, end: int) -> list[Span]:
        """The faults of the database, and the locks on its rows."""
        return [span for span in self._of_database if span.touches(begin, end)]

    def of_worker(self, worker_id: str, begin: int, end: int) -> list[Span]:
        """All of these."""
        return [
            *self.of_process(worker_id, begin, end),
            *self.of_link(worker_id, begin, end),
            *self.of_servers(worker_id, begin, end),
        ]

    def frozen_ns(self, worker_id: str, begin: int, end: int) -> int:
        """How long the worker's process was stopped within the span."""
        stills = [span for span in self.of_process(worker_id, begin, end) if span.kind in _STILL]
        total = 0
        for span in sorted(stills, key=lambda span: span.begin):
            total += max(0, min(span.end, end) - max(span.begin, begin))
            begin = max(begin, span.end)
        return total

    def is_calm(self, begin: int, end: int) -> bool:
        """Whether a server, its connections and the database had no fault."""
        of_all = [*self.away, *self._of_database]
        return not any(span.touches(begin, end) for span in of_all) and any(
            self._places[server][0].began <= begin
            and not any(span.touches(begin, end) for span in self._of_server(server))
            for server in list(self._places)
            if server.startswith(_SERVER)
        )

    def concurrency(self, worker_id: str, at: int) -> int:
        """The concurrency of the worker at that moment."""
        lives = self._of_worker.get(worker_id, [])
        place = bisect_right([life.began for life in lives], at)
        return lives[max(place - 1, 0)].concurrency if lives else 1

    def least_concurrency(self, worker_id: str) -> int:
        """The lowest concurrency of the processes of this name."""
        return min((life.concurrency for life in self._of_worker[worker_id]), default=1)

    def lives(self, worker_id: str) -> list[tuple[int, int]]:
        """When each process of this name began, and when its end did."""
        return [
            (life.began, min((span.begin for span in life.spans if span.kind in _ENDS), default=_FOR_EVER))
            for life in self._of_worker[worker_id]
        ]

    def topics(self, worker_id: str) -> frozenset[str]:
        """The topics that every process of this name takes."""
        lives = self._of_worker.get(worker_id)
        return lives[0].topics.intersection(*(life.topics for life in lives)) if lives else frozenset()

    def of_kind(self, kind: str) -> list[Span]:
        """All faults of a kind that is recorded for a process, or for none of what is above."""
        return [span for process in self._processes.values() for span in process.spans if span.kind == kind]

    @property
    def stalls(self) -> list[Span]:
        """Of all processes, but for those that were frozen."""
        return [
            stall
            for process in self._processes.values()
            for stall in process.spans
            if stall.kind == STALL
            and not any(
                span.kind == FREEZE and span.touches(stall.begin, stall.end) for span in process.spans
            )
        ]

    @property
    def workers(self) -> list[str]:
        return sorted(self._of_worker)

    # ------------------------------------------------------------ how

    def _read(self, events: Iterable[Event]) -> None:
        open_ones: dict[tuple[str, str], Event] = {}
        for event in events:
            target = event.facts.get("target", "")
            match event.what:
                case "began":
                    self._begin(event)
                case "led" if target in self._processes:
                    self._processes[target].replicas.append((event.t, event.facts["replica"]))
                case "ending" | "gone":
                    self._end(target, event.t, event.what)
                case "stalled":
                    begin = event.t - int(event.facts["seconds"] * 1e9)
                    self._process(event.who).spans.append(Span(begin, event.t, STALL, event.who))
                case "fault":
                    open_ones[event.facts["kind"], target] = event
                case "healed":
                    if (fault := open_ones.pop((event.facts["kind"], target), None)) is not None:
                        self._add(fault, event.t)
        for fault in open_ones.values():
            self._add(fault, _FOR_EVER)

    def _begin(self, event: Event) -> None:
        facts = event.facts
        process = self._process(facts["target"])
        process.began = event.t
        for earlier in self._places[process.place]:
            earlier.over = min(earlier.over, event.t + _RETURN_NS)
        self._places[process.place].append(process)
        if "worker_id" in facts:
            process.worker_id, process.concurrency = facts["worker_id"], facts["concurrency"]
            process.topics = frozenset(facts.get("topics", ()))
            process.replicas.append((event.t, facts["replica"]))
            self._of_worker[process.worker_id].append(process)

    def _end(self, name: str, t: int, kind: str) -> None:
        self._process(name).spans.append(Span(t, _FOR_EVER, kind, name))

    def _add(self, fault: Event, healed: int) -> None:
        kind, target = fault.facts["kind"], str(fault.facts["target"])
        if kind in _HARMLESS:
            return
        span = Span(fault.t, _FOR_EVER if kind in _FATAL else healed, kind, target, fault.facts)
        if kind == AWAY and target == ALL_SERVERS:
            self.away.append(span)
        elif target.startswith(_DATABASE):
            self._of_database.append(span)
        elif "~" in target:
            self._links[target].append(span)
        else:
            self._process(target).spans.append(span)

    def _process(self, name: str) -> _Process:
        return self._processes.setdefault(name, _Process(name))

    def _spans_of(self, process: _Process) -> Iterator[Span]:
        """The spans of a process end when the next one takes its place."""
        for span in process.spans:
            yield replace(span, end=min(span.end, process.over))

    def _of_server(self, replica: str) -> list[Span]:
        of_processes = [span for process in self._places[replica] for span in self._spans_of(process)]
        return [*of_processes, *self._links.get(f"{replica}~postgres", ())]


def _segments(replicas: list[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    for place, (since, replica) in enumerate(replicas):
        until = replicas[place + 1][0] if place + 1 < len(replicas) else _FOR_EVER
        yield since, until, replica
