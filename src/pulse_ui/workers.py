"""The page of workers: all with their jobs, disconnected ones first; quiet, resume and stop them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

import pulse
from pulse_text import printable
from pulse_ui import tuning
from pulse_ui.overview.pages import NO_SERVERS
from pulse_ui.web.forms import Form
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
    workers, servers = await asyncio.gather(
        visit.client.workers(), visit.ask("ListServers", visit.client.servers, NO_SERVERS)
    )
    topic = visit.query.text("topic")
    topics = topics_of(workers)
    return await visit.page(
        "workers.html",
        title="Workers",
        live="jobs",
        servers=servers,
        has_workers=bool(workers),
        view=workers_view(workers, topic),
        topic=topic,
        # A topic named in the URL is selected even if no worker serves it.
        topics=topics if topic in topics or not topic else sorted([*topics, topic]),
    )


async def set_state(visit: Visit, form: Form) -> Response:
    worker, reason = form.text("worker"), form.reason
    match form.text("state"):
        case "quiet":
            await visit.client.quiet_worker(worker, reason=reason)
            sentence = f"{worker} takes no further jobs. It finishes those that it has started."
        case "running":
            await visit.client.resume_worker(worker, reason=reason)
            sentence = f"{worker} takes jobs again."
        case "stopping":
            note = await visit.client.stop_worker(worker, reason=reason)
            sentence = note or f"{worker} drains and ends. A supervisor may start it again."
        case _:
            raise pulse.InvalidArgument("Choose what the worker is to do.")
    return visit.back(form, sentence, otherwise="/workers")


@dataclass(frozen=True, slots=True)
class Member:
    """One worker on the page."""

    anchor: str
    """The id of its element, which other pages link to."""
    name: str
    worker: pulse.WorkerInfo
    held: tuple[pulse.HeldJob, ...]
    held_left_out: int
    percent_used: int

    @property
    def is_gone(self) -> bool:
        """True if it holds jobs without a connection."""
        return self.worker.connected_at is None


@dataclass(frozen=True, slots=True)
class WorkersView:
    members: tuple[Member, ...]
    members_left_out: int
    connected: int
    capacity: int
    held: int
    """By connected workers."""
    gone: int
    held_by_gone: int

    @property
    def percent_used(self) -> int:
        return _percent(self.held, self.capacity)


def workers_view(workers: Sequence[pulse.WorkerInfo], topic: str = "") -> WorkersView:
    """Return the workers that serve a topic or hold a job of it; without a topic, all."""
    chosen = [worker for worker in workers if not topic or _concerns(worker, topic)]
    chosen.sort(key=lambda worker: worker.connected_at is not None)
    shown = chosen[: tuning.WORKERS_SHOWN]
    # Bounds the page by workers times jobs: it refreshes every second.
    each = min(tuning.HELD_SHOWN, max(tuning.HELD_SHOWN_AT_LEAST, tuning.HELD_ROWS // max(1, len(shown))))
    connected = [worker for worker in chosen if worker.connected_at is not None]
    gone = [worker for worker in chosen if worker.connected_at is None]
    # Each connection of a worker reports the jobs it holds: count them once.
    held_by = {worker.worker_id: worker.held_count for worker in connected}
    return WorkersView(
        members=tuple(_members(shown, each)),
        members_left_out=len(chosen) - len(shown),
        connected=len(connected),
        capacity=sum(worker.capacity for worker in connected),
        held=sum(held_by.values()),
        gone=len(gone),
        held_by_gone=sum(worker.held_count for worker in gone),
    )


def topics_of(workers: Sequence[pulse.WorkerInfo]) -> list[str]:
    """Return the topics that any of them serves or holds, sorted."""
    asked = {topic for worker in workers for topic in worker.topics}
    return sorted(asked | {job.topic for worker in workers for job in worker.held})


def _members(workers: Sequence[pulse.WorkerInfo], each: int) -> list[Member]:
    seen: Counter[str] = Counter()
    members = []
    for worker in workers:
        seen[worker.worker_id] += 1
        again = seen[worker.worker_id]
        held = worker.held[:each]
        members.append(
            Member(
                anchor=f"worker-{worker.worker_id}" + (f"--{again}" if again > 1 else ""),
                name=printable.one_line(worker.worker_id),
                worker=worker,
                held=held,
                held_left_out=worker.held_count - len(held),
                percent_used=_percent(worker.held_count, worker.capacity),
            )
        )
    return members


def _concerns(worker: pulse.WorkerInfo, topic: str) -> bool:
    return topic in worker.topics or any(job.topic == topic for job in worker.held)


def _percent(part: int, whole: int) -> int:
    return min(100, round(100 * part / whole)) if whole else 0
