"""I8: nothing is claimed while dispatch is paused, and no handler starts later than the convergence.

A claim whose statement began before the pause was committed may still take its batch. So a claim is a
violation only if its statement began after the pause was acknowledged, and ended before the resume began.

A start is a violation if it comes more than CONVERGENCE_SECONDS after the acknowledgment. The time during
which the worker's process was frozen is added.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from faults.changes import CLAIMS, SwitchChange
from faults.evidence import Evidence, Request
from faults.violations import Violation

NOTHING_WHILE_PAUSED = "nothing is claimed while dispatch is paused"
NO_START_WHILE_PAUSED = "no handler starts later than the convergence after an acknowledged pause"
PAUSE_IS_KEPT = "an acknowledged pause is stored"

# As in docs/reliability.md: by then no worker starts jobs of a paused topic.
CONVERGENCE_SECONDS = 2.0

_FOR_EVER = 1 << 62


class Pause(NamedTuple):
    """A span in which every statement that began in it certainly read the pause."""

    begin: int
    end: int


def check_pauses(evidence: Evidence) -> Iterator[Violation]:
    turns: defaultdict[str, list[SwitchChange]] = defaultdict(list)
    for change in evidence.audit.switches:
        turns[change.topic].append(change)
    asked: defaultdict[str, list[Request]] = defaultdict(list)
    for request in evidence.requests["pause"]:
        asked[request.facts["topic"]].append(request)
    pauses: dict[str, list[Pause]] = {}
    for topic, requests in asked.items():
        begun = []
        for request in requests:
            if request.how != "done":
                continue
            pause = _span(evidence, request, turns[topic])
            if pause is None:
                what = f"The pause of {topic or 'everything'} was acknowledged, but never stored."
                yield Violation("I8", PAUSE_IS_KEPT, what, switch=topic)
            elif pause.begin < pause.end:
                begun.append(pause)
        pauses[topic] = sorted(begun)
    yield from _check_claims(evidence, pauses)
    yield from _check_starts(evidence, pauses)


def _span(evidence: Evidence, request: Request, turns: list[SwitchChange]) -> Pause | None:
    """From the answer to the request, when the pause was committed, until the resume.

    If several changes may be the one of this request, the first of them was committed in any case: changes of
    one pause wait for each other.
    """
    assert request.ended is not None
    sent, answered = evidence.clock.earliest(request.sent), evidence.clock.latest(request.ended)
    for place, turn in enumerate(turns):
        if turn.paused and sent <= turn.at <= answered:
            end = next((later.at for later in turns[place:] if not later.paused), _FOR_EVER)
            return Pause(answered, end)
    return None


def _check_claims(evidence: Evidence, pauses: dict[str, list[Pause]]) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        for verb, change in life:
            if verb not in CLAIMS:
                continue
            for topic in {"", change.topic} & pauses.keys():
                pause = _covering(pauses[topic], change.statement_at)
                if pause is not None and change.at < pause.end:
                    holder = change.new and change.new.locked_by
                    what = f"{holder} got a {change.topic} job by a statement that began "
                    what += f"{(change.statement_at - pause.begin) / 1e6:.3f} s after the pause of "
                    what += f"{topic or 'everything'} was acknowledged."
                    yield Violation(
                        "I8", NOTHING_WHILE_PAUSED, what, job_id, switch=topic, at=change.at, seq=change.seq
                    )


def _check_starts(evidence: Evidence, pauses: dict[str, list[Pause]]) -> Iterator[Violation]:
    for job_id, executions in evidence.executions.items():
        topic_of_job = evidence.lives[job_id][0].change.topic if job_id in evidence.lives else ""
        for execution in executions:
            moment = evidence.clock.earliest(execution.t)
            for topic in {"", topic_of_job} & pauses.keys():
                pause = _covering(pauses[topic], moment)
                if pause is None or evidence.clock.latest(execution.t) >= pause.end:
                    continue
                begin = evidence.clock.about(pause.begin)
                frozen = evidence.disturbances.frozen_ns(execution.worker, begin, execution.t) / 1e9
                late = (moment - pause.begin) / 1e6 - frozen - CONVERGENCE_SECONDS
                if late > 0:
                    what = f"{execution.worker} started attempt {execution.attempt} "
                    what += f"{late:.3f} s later than the convergence after the pause of "
                    what += f"{topic or 'everything'} was acknowledged."
                    yield Violation("I8", NO_START_WHILE_PAUSED, what, job_id, switch=topic, at=moment)


def _covering(pauses: list[Pause], moment: int) -> Pause | None:
    """The last pause that had begun at the moment."""
    place = bisect_right(pauses, (moment - 1, _FOR_EVER))
    return pauses[place - 1] if place else None
