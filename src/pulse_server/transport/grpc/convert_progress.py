"""Progress, between messages and the domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain.jobs import Claim
from pulse_server.domain.progress import Progress, ProgressReport, clean_report
from pulse_server.doors.boundary import timestamp


def reports(messages: Iterable[pb.ProgressReport], claims: Sequence[Claim]) -> dict[Claim, ProgressReport]:
    """The reports by the claims that they name. One that names none is left out."""
    return {
        claims[message.index]: report(message) for message in messages if 0 <= message.index < len(claims)
    }


def report(message: pb.ProgressReport) -> ProgressReport:
    return clean_report(
        message.fraction if message.HasField("fraction") else None,
        message.text,
        message.cursor if message.HasField("cursor") else None,
        message.number,
    )


def view(progress: Progress | None) -> pb.Progress | None:
    if progress is None:
        return None
    return pb.Progress(
        fraction=progress.fraction,
        text=progress.text,
        cursor=progress.cursor.encode(),
        attempt=progress.attempt,
        reported_at=timestamp(progress.reported_at),
        since=timestamp(progress.since),
        since_fraction=progress.since_fraction,
    )
