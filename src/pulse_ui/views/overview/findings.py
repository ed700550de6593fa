"""Findings: what needs somebody, each as one sentence with a place to act, and many of a kind summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import quote

from pulse_text import printable
from pulse_ui.views import words

MOST_OF_A_KIND = 4
"""Of more, only the heaviest are told one by one: a hundred topics without a worker have one cause, and would
hide everything else."""
_MANY = {
    "paused": "more topics are paused.",
    "starving": "more topics have ready jobs and no worker.",
    "old": "more topics fall behind.",
    "dead": "more topics lost jobs to the dead letters in the last hour.",
    "failing": "more topics fail often.",
    "worker": "more workers hold jobs but are connected to no server.",
    "silent": "more workers have gone silent.",
}

Place = tuple[str, str, str]
"""Where to act: the path, the text of the link, and the call of the contract that the page needs."""
TOPICS: Place = ("#topics", "See the topics", "ListTopics")
WORKERS: Place = ("/workers", "See the workers", "ListWorkers")


class Severity(IntEnum):
    WARNING = 1
    PROBLEM = 2

    @property
    def mark(self) -> str:
        return {Severity.WARNING: "!", Severity.PROBLEM: "✕"}[self]


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    about: str
    """Tells it from the others of its kind, from one look to the next."""
    severity: Severity
    subject: str
    """The topic or the worker; empty if it is about all."""
    sentence: str
    """What is said of the subject."""
    path: str
    path_text: str
    needs: str
    """The call of the contract that the place to act needs."""
    weight: float = 0.0
    """Among those of its kind, the heaviest comes first."""
    is_topic: bool = False
    """True if the subject is a topic."""

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.about}"


def about_all(kind: str, severity: Severity, sentence: str, place: Place, weight: float) -> Finding:
    """Return a finding about the queue as a whole."""
    return Finding(kind, "", severity, "", sentence, *place, weight)


def about_topic(
    kind: str, topic: str, severity: Severity, sentence: str, place: Place, weight: float
) -> Finding:
    """Return a finding about a topic."""
    return Finding(kind, topic, severity, topic, sentence, *place, weight, is_topic=True)


def about_worker(kind: str, worker_id: str, severity: Severity, sentence: str, weight: float) -> Finding:
    """Return a finding about a worker."""
    name = printable.one_line(worker_id)
    return Finding(kind, quote(worker_id), severity, name, sentence, *WORKERS, weight)


def summarized(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings; of a kind that has too many, the heaviest, and how many more there are."""
    shown: list[Finding] = []
    for kind, severity in dict.fromkeys((finding.kind, finding.severity) for finding in found):
        alike = [finding for finding in found if (finding.kind, finding.severity) == (kind, severity)]
        if len(alike) <= MOST_OF_A_KIND:
            shown += alike
            continue
        kept = MOST_OF_A_KIND - 1
        shown += alike[:kept]
        sentence = f"{words.count(len(alike) - kept)} {_MANY[kind]}"
        place = TOPICS if alike[0].is_topic else WORKERS
        shown.append(Finding(kind, f"+{severity}", severity, "", sentence, *place))
    return shown
