"""The shapes of JSON output. Keys are only ever added; times are ISO 8601 in UTC, or null."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse_cli.jobs.views import job_shape
from pulse_cli.output import Shape, fields_shape, time_shape
from pulse_cli.topics.views import dispatch_shape, topic_shape

if TYPE_CHECKING:
    import pulse
    from pulse_cli.views.overview_snapshot import Snapshot


def worker_shape(worker: pulse.WorkerInfo) -> Shape:
    """A worker, and the jobs that it holds."""
    return fields_shape(worker, "worker_id server connected_at topics capacity held_count held state")


def worker_order_shape(worker_id: str, state: str, note: str | None = None) -> Shape:
    """What was ordered of a worker."""
    return {"worker_id": worker_id, "state": state, "note": note}


def server_shape(server: pulse.ServerInfo) -> Shape:
    """A server."""
    return fields_shape(server, "id name address version started_at workers silent_since")


def held_shape(job: pulse.HeldJob) -> Shape:
    """A job held by a worker."""
    return fields_shape(job, "id topic attempt since lease_until progress")


def snapshot_shape(snapshot: Snapshot) -> Shape:
    """The queue at one moment."""
    return {
        "at": time_shape(snapshot.at),
        "dispatch": dispatch_shape(snapshot.dispatch, snapshot.topics, snapshot.total),
        "topics": [topic_shape(topic) for topic in snapshot.topics],
        "workers": [worker_shape(worker) for worker in snapshot.workers],
        "findings": [finding_shape(finding) for finding in snapshot.findings],
    }


def finding_shape(finding: pulse.Finding) -> Shape:
    """What needs attention about a topic, a worker or the queue."""
    return fields_shape(finding, "kind urgent topic worker_id sentence harm")


def dead_letter_shape(group: pulse.DeadLetterGroup) -> Shape:
    """Dead letters with the same error."""
    own = fields_shape(group, "topic error_group count first_at last_at")
    return own | {"sample": job_shape(group.sample)}


def identity_shape(identity: pulse.Identity) -> Shape:
    """The user and role of the caller."""
    return {"user": identity.user, "role": identity.role, "methods": sorted(identity.methods)}
