"""What needs attention, as the overview shows it: a sentence each, with the place to act."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

import pulse
from pulse_text import printable
from pulse_ui.views.overview.findings import WORKERS, Finding, Place, Severity

# By kind. {topic} is the topic as it stands in a URL.
_PLACES: Mapping[str, Place] = {
    "paused": ("/dispatch", "Details", "GetDispatchStatus"),
    "scheduler": ("/schedules", "Show schedules", "ListSchedules"),
    "dead": ("/dead-letters?topic={topic}", "Show errors", "ListDeadLetterGroups"),
    "failing": ("/jobs?topic={topic}&status=RETRYING", "Show retrying jobs", "ListJobs"),
    "starving": WORKERS,
    "old": ("/jobs?topic={topic}&status=PENDING", "Show waiting jobs", "ListJobs"),
    "limited": ("/limits?topic={topic}", "Show limits", "ListLimits"),
    "flood": ("/limits?topic={topic}", "Show lanes", "ListLanes"),
    "long": ("/jobs?topic={topic}&status=RUNNING", "Show running jobs", "ListJobs"),
    "worker": WORKERS,
    "silent": WORKERS,
    "memory": WORKERS,
}
# A later server may have kinds that this dashboard does not know.
_JOBS: Place = ("/jobs?topic={topic}", "Show jobs", "ListJobs")
_NOWHERE: Place = ("", "", "")


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
