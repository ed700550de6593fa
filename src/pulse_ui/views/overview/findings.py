"""Findings: one sentence each with a link to act, and a summary for many of a kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from pulse_ui.views import words

MOST_OF_A_KIND = 4
"""List only the most harmful: a hundred topics without a worker have one cause, and hide the rest."""
_MANY = {
    "paused": "more topics are paused.",
    "starving": "more topics have ready jobs and no worker.",
    "old": "more topics are falling behind.",
    "limited": "more topics wait for their limits.",
    "dead": "more topics dead-lettered jobs in the last hour.",
    "failing": "more topics have many failures.",
    "worker": "more workers hold jobs but are not connected.",
    "silent": "more workers send no heartbeats.",
    "memory": "more hosts have workers that were replaced for memory.",
    "long": "more topics have runs longer than usual.",
    "flood": "more topics have a lane with most of the waiting jobs.",
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
    is_topic: bool = False
    """True if the subject is a topic."""

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.about}"


def summarized(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings in their order; of a kind with too many, the first and a count of the rest."""
    shown: list[Finding] = []
    alike = Counter((finding.kind, finding.severity) for finding in found)
    seen: Counter[tuple[str, Severity]] = Counter()
    for finding in found:
        kind = (finding.kind, finding.severity)
        seen[kind] += 1
        if alike[kind] <= MOST_OF_A_KIND or seen[kind] < MOST_OF_A_KIND:
            shown.append(finding)
        elif seen[kind] == MOST_OF_A_KIND:
            more = words.count(alike[kind] - MOST_OF_A_KIND + 1)
            sentence = f"{more} {_MANY.get(finding.kind, 'more findings of this kind.')}"
            place = TOPICS if finding.is_topic else WORKERS
            shown.append(
                Finding(finding.kind, f"+{finding.severity}", finding.severity, "", sentence, *place)
            )
    return shown
