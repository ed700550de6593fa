"""Findings: one sentence each with a link to act, and a summary for many of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import quote

from pulse_text import printable
from pulse_ui.views import words

MOST_OF_A_KIND = 4
"""List only the heaviest: a hundred topics without a worker have one cause, and hide the rest."""
_MANY = {
    "paused": "more topics are paused.",
    "starving": "more topics have ready jobs and no worker.",
    "old": "more topics are falling behind.",
    "limited": "more topics wait for their limits.",
    "dead": "more topics dead-lettered jobs in the last hour.",
    "failing": "more topics have many failures.",
    "worker": "more workers hold jobs but are not connected.",
    "silent": "more workers send no heartbeats.",
}

Place = tuple[str, str, str]
"""Where to act: the path, the text of the link, and the RPC that the page needs."""
TOPICS: Place = ("#topics", "Show topics", "ListTopics")
WORKERS: Place = ("/workers", "Show workers", "ListWorkers")


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
    """Identifies the finding within its kind, across refreshes."""
    severity: Severity
    subject: str
    """The topic or the worker; empty for the whole queue."""
    sentence: str
    """The rest of the sentence."""
    path: str
    path_text: str
    needs: str
    """The RPC that the linked page needs."""
    weight: float = 0.0
    """Within a kind, the heaviest finding comes first."""
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
    """Return the findings; of a kind with too many, the heaviest and a count of the rest."""
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
