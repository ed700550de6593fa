"""I1, the first half: an acknowledged submit is stored once, and every stored job was submitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from faults.changes import DELETE, HAND_OVER, INSERT
from faults.evidence import Evidence, Request
from faults.violations import Violation

ACKNOWLEDGED_IS_STORED = "an acknowledged submit is stored"
STORED_ONCE = "a submit is stored at most once"
ONE_ANSWER = "a key is answered with one job"
REFUSED_IS_NOT_STORED = "a refused submit is not stored"
WAS_SUBMITTED = "a job was submitted or scheduled"


def check_submits(evidence: Evidence) -> Iterator[Violation]:
    submits: defaultdict[tuple[str, str], list[Request]] = defaultdict(list)
    for submit in evidence.requests["submit"]:
        submits[submit.facts["topic"], submit.facts["key"]].append(submit)
    stored: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for job_id, requests in evidence.submits_of.items():
        for name in {(request.facts["topic"], request.facts["key"]) for request in requests}:
            stored[name].append(job_id)
    for (topic, key), requests in submits.items():
        yield from _check_key(evidence, topic, key, requests, stored[topic, key])
    yield from _check_origins(evidence)


def _check_key(
    evidence: Evidence, topic: str, key: str, requests: list[Request], stored: list[str]
) -> Iterator[Violation]:
    """Check all submits of one key. Those that ended with an error may have stored the job, once."""
    answers = [request.answer["job_id"] for request in requests if request.how == "done"]
    for job_id in sorted({answer for answer in answers if answer not in evidence.lives}):
        what = f"{topic} {key!r} was acknowledged as job {job_id}, which was never in the table."
        yield Violation("I1", ACKNOWLEDGED_IS_STORED, what, job_id)
    # A key is free again once its job was deleted.
    verbs = [step.verb for job_id in stored for step in evidence.lives[job_id]]
    begun, deleted = verbs.count(INSERT) + verbs.count(HAND_OVER), verbs.count(DELETE)
    if begun > 1 + deleted:
        what = f"{topic} {key!r} was stored {begun} times: {', '.join(sorted(stored))}."
        yield Violation("I1", STORED_ONCE, what, stored[-1], others=tuple(stored[:-1]))
    if len(set(answers)) > 1 + deleted:
        what = f"{topic} {key!r} was acknowledged as different jobs: {', '.join(sorted(set(answers)))}."
        yield Violation("I1", ONE_ANSWER, what, max(answers))
    if stored and all(request.how == "refused" for request in requests):
        what = f"{topic} {key!r} was refused, but job {stored[0]} was stored."
        yield Violation("I1", REFUSED_IS_NOT_STORED, what, stored[0])


def _check_origins(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        first = life[0].change
        if not first.schedule_id and not evidence.submits_of[job_id]:
            what = f"Job {job_id} ({first.topic}, key {first.key!r}) exists, but was never submitted."
            yield Violation("I1", WAS_SUBMITTED, what, job_id, at=first.at, seq=first.seq)
