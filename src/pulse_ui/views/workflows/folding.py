"""Equal jobs of a large workflow folded into one box: 1 + 10,000 + 1 jobs are three boxes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from pulse_text.workflows import LinkedJob, equality_keys
from pulse_ui.views.workflows.layout import joint_count, layers

MOST_BOXES = 200
"""More cannot be read."""
MOST_LINES = 1_000
MOST_JOINTS = 4_000
"""Two jobs that are 1,000 layers apart need 1,000 joints."""


@dataclass(frozen=True, slots=True)
class Folded:
    members: dict[int, list[int]]
    """The numbers of the jobs of each box, which has the number of its first job."""
    parents: dict[int, list[int]]
    """The boxes that each box waits for."""

    @property
    def is_readable(self) -> bool:
        return (
            len(self.members) <= MOST_BOXES
            and sum(map(len, self.parents.values())) <= MOST_LINES
            and joint_count(self.parents) <= MOST_JOINTS
        )


def unfolded(jobs: Sequence[LinkedJob]) -> Folded | None:
    """Return a box for each job. None: they are too many to read."""
    if len(jobs) > MOST_BOXES:
        return None
    boxes = _by(jobs, [job.number for job in jobs])
    return boxes if boxes.is_readable else None


def fold(jobs: Sequence[LinkedJob]) -> Folded | None:
    """Fold equal jobs. If that is not enough, fold all jobs of one topic and condition in a layer.

    None: the workflow is too large to draw.
    """
    for kinds in (equality_keys, _in_layers):
        if (folded := _by(jobs, kinds(jobs))).is_readable:
            return folded
    return None


def _in_layers(jobs: Sequence[LinkedJob]) -> list[Hashable]:
    layer_of = layers({job.number: job.parents for job in jobs})
    return [(job.topic, job.when, layer_of[job.number]) for job in jobs]


def _by(jobs: Sequence[LinkedJob], kinds: Sequence[Hashable]) -> Folded:
    first: dict[Hashable, int] = {}
    box_of = {job.number: first.setdefault(kind, job.number) for job, kind in zip(jobs, kinds, strict=True)}
    members: dict[int, list[int]] = {box: [] for box in first.values()}
    parents: dict[int, dict[int, None]] = {box: {} for box in first.values()}
    for job in jobs:
        box = box_of[job.number]
        members[box].append(job.number)
        parents[box].update(dict.fromkeys(box_of[parent] for parent in job.parents))
    return Folded(members, {box: sorted(found) for box, found in parents.items()})
