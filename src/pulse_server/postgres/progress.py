"""Progress, between the domain and the column of a job."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from pulse_server.domain.progress import Progress, ProgressReport


def progress_column(reports: Iterable[ProgressReport | None]) -> list[str | None]:
    """The reports as an array parameter; empty if there are none, which costs nothing."""
    texts = [None if report is None else report_to_json(report) for report in reports]
    return texts if any(texts) else []


def report_to_json(report: ProgressReport) -> str:
    entries: dict[str, object] = {
        "fraction": report.fraction,
        "text": report.text,
        "number": report.number,
    }
    if report.cursor is not None:
        # A text, not JSON: jsonb would change numbers, and refuse some strings.
        entries["cursor"] = report.cursor or None
    return json.dumps(entries)


def progress_from_json(text: str | None) -> Progress | None:
    if text is None:
        return None
    entries = json.loads(text)
    since = entries.get("since")
    return Progress(
        fraction=entries["fraction"],
        text=entries["text"],
        cursor=entries.get("cursor") or "",
        attempt=entries["attempt"],
        reported_at=datetime.fromisoformat(entries["reported_at"]),
        since=None if since is None else datetime.fromisoformat(since),
        since_fraction=entries.get("since_fraction") or 0.0,
    )
