"""What needs attention: one sentence each with a link to act, and a summary for many of a kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import quote

import pulse
from pulse_text import printable
from pulse_ui import words

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
# By kind. {topic} is the topic as it stands in a URL.
_PLACES: Mapping[str, Place] = {
    "paused": ("/dispatch", "Details", "GetDispatchStatus"),
    "scheduler": ("/schedules", "Show schedules", "ListSchedules"),
    "dead": ("/dead-letters?topic={topic}", "Show errors", "ListDeadLetterGroups"),
    "failing": ("/jobs?topic={topic}&status=RETRYING", "Show retrying jobs", "ListJobs"),
    "starving": WORKERS,
    "old": ("/jobs?topic={topic}&status=PENDING", "Show waiting jobs", "ListJobs"),
    "limited": ("/topics/{topic}#settings", "Show limits", "ListLimits"),
    "flood": ("/topics/{topic}#lanes", "Show lanes", "ListLanes"),
    "long": ("/jobs?topic={topic}&status=RUNNING", "Show running jobs", "ListJobs"),
    "worker": WORKERS,
    "silent": WORKERS,
    "memory": WORKERS,
}
# A later server may have kinds that this dashboard does not know.
_JOBS: Place = ("/jobs?topic={topic}", "Show jobs", "ListJobs")
_NOWHERE: Place = ("", "", "")


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


def findings_view(found: Iterable[pulse.Finding]) -> list[Finding]:
    """Return the findings in the server's order, by harm."""
    return [_view(finding) for finding in found]


def _view(finding: pulse.Finding) -> Finding:
    path, text, needs = _PLACES.get(finding.kind, _JOBS if finding.topic else _NOWHERE)
    subject = finding.topic or finding.worker_id or ""
    return Finding(
        finding.kind,
        quote(subject),
        Severity.PROBLEM if finding.urgent else Severity.WARNING,
        printable.one_line(subject),
        finding.sentence,
        path.replace("{topic}", quote(finding.topic or "", safe="")),
        text,
        needs,
        is_topic=bool(finding.topic),
    )


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
