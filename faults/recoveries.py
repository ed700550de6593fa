"""How soon work resumed after each fault, read from the history."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from faults.evidence import Evidence
from faults.history import Event
from faults.places import SKEW

_STARTED, _SUBMITTED = "started", "submitted"
_SECOND = 1e9


@dataclass(frozen=True)
class Recovery:
    """All faults of one kind and sort of target, and how soon work resumed after each."""

    kind: str
    target: str
    count: int
    seconds: tuple[float, ...]  # of those after which there was work left

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    @property
    def longest(self) -> float | None:
        return max(self.seconds, default=None)


def recoveries(evidence: Evidence, attachments: Mapping[str, str]) -> list[Recovery]:
    """For each kind of fault, the times from its end until its target worked again.

    Its end is the moment when a condition was healed or a process was restarted. Work resumes with the next
    handler that a worker behind it starts, or for an application with the next acknowledged submit.
    `attachments` maps each worker process to the server that it connects to.
    """
    reach = _Reach(evidence.events, attachments)
    times: defaultdict[tuple[str, str], list[float | None]] = defaultdict(list)
    for kind, target, healed in _ends(evidence.events):
        # A wrong clock interrupts no work.
        seconds = None if kind == SKEW else reach.seconds_until_work(target, healed)
        times[kind, _sort(target)].append(seconds)
    return [
        Recovery(kind, target, len(found), tuple(seconds for seconds in found if seconds is not None))
        for (kind, target), found in sorted(times.items())
    ]


def orphan_seconds(evidence: Evidence) -> list[float]:
    """For each handler that died with its worker: from the kill until a worker started that job again."""
    killed = {
        event.facts["target"]: event.t
        for event in evidence.events
        if event.what == "fault" and event.facts["kind"] == "kill"
    }
    return [
        (following.t - killed[execution.who]) / _SECOND
        for executions in evidence.executions.values()
        for execution, following in pairwise(executions)
        if execution.outcome is None and execution.who in killed and following.t > killed[execution.who]
    ]


class _Reach:
    """Where work resumed, and when."""

    def __init__(self, events: Iterable[Event], attachments: Mapping[str, str]) -> None:
        self._work: defaultdict[str, list[int]] = defaultdict(list)
        for event in events:
            if event.what == _STARTED:
                place = event.who.partition(".")[0]
                for name in ("", place, attachments.get(event.who, ""), f"topic {event.facts['topic']}"):
                    self._work[name].append(event.t)
            elif event.what == _SUBMITTED:
                self._work[event.who.partition(".")[0]].append(event.t)

    def seconds_until_work(self, target: str, healed: int) -> float | None:
        """None if no work was left, or none had begun: then nothing was interrupted."""
        work = self._work[self._name(target)]
        place = bisect_right(work, healed)
        return (work[place] - healed) / _SECOND if 0 < place < len(work) else None

    def _name(self, target: str) -> str:
        """Of a link the end that waits for the other; of a process its place; else everything."""
        name = target.partition("~")[0].partition(".")[0]
        return name if name in self._work else ""


def _ends(events: Iterable[Event]) -> Iterator[tuple[str, str, int]]:
    for event in events:
        if event.what == "healed":
            yield event.facts["kind"], event.facts["target"], event.t


def _sort(target: str) -> str:
    """worker-3.2 is a worker, pulsed-1~postgres is pulsed~postgres."""
    return re.sub(r"-\d+(\.\d+)?|\.\d+", "", target)
