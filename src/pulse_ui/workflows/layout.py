"""Where the boxes and lines of a drawing are: layers by the longest path, few crossings, no overlap.

A line that passes a layer takes a joint in it, a narrow place of its own, and so runs between the boxes.
All lines of a parent share its joints: they run together until they part. Equal jobs of a large workflow are
folded into one box: 1 + 10,000 + 1 jobs are three boxes.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pulse_text.workflows import LinkedJob, equality_keys

BOX_HEIGHT = 46
BOX_WIDTH, NARROW_WIDTH = 188, 160
"""Two narrow boxes fit a phone."""
_MARGIN = 8
_JOINT = 6
"""The size of a joint, across the direction of the drawing."""
_SWEEPS = 8
"""Further ones hardly remove crossings."""
_STRAIGHTENINGS = 4
_STIFFNESS = 8.0
"""A joint between joints keeps its place against this many boxes: long lines are straight."""

Item = tuple[int, int]
"""A box in its layer, or a joint of a box in a later layer."""
Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Box:
    key: int
    left: int
    top: int


@dataclass(frozen=True, slots=True)
class Edge:
    parent: int
    child: int
    points: tuple[Point, ...]
    """Where it leaves the parent, enters and leaves each joint, and enters the child."""


@dataclass(frozen=True, slots=True)
class Layout:
    box_width: int
    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class _Direction:
    """Sizes along the direction of the drawing, and across it."""

    is_down: bool
    along: int
    across: int
    between_layers: int
    between_boxes: int

    def point(self, along: float, across: float) -> Point:
        there = round(along) + _MARGIN, round(across) + _MARGIN
        return (there[1], there[0]) if self.is_down else there


_RIGHT = _Direction(False, BOX_WIDTH, BOX_HEIGHT, 60, 14)
_DOWN = _Direction(True, BOX_HEIGHT, NARROW_WIDTH, 40, 12)


def lay_out(parents: Mapping[int, Iterable[int]], *, is_down: bool = False) -> Layout:
    """Lay out boxes, given the parents of each. The parents must not form a cycle.

    The result depends on the boxes and their order alone.
    """
    direction = _DOWN if is_down else _RIGHT
    layer_of = layers(parents)
    rows, links = _rows(parents, layer_of)
    rows = _untangled(rows, links)
    centers = _centers(rows, links, layer_of, direction)
    step = direction.along + direction.between_layers

    def ends(item: Item) -> tuple[Point, Point]:
        start = item[1] * step
        return (
            direction.point(start, centers[item]),
            direction.point(start + direction.along, centers[item]),
        )

    boxes = []
    for key, layer in layer_of.items():
        left, top = direction.point(layer * step, centers[key, layer] - direction.across / 2)
        boxes.append(Box(key, left, top))
    lines = []
    for child, its_parents in parents.items():
        for parent in its_parents:
            way = [(parent, layer) for layer in range(layer_of[parent], layer_of[child])]
            points = [point for item in way for point in ends(item)][1:]
            lines.append(Edge(parent, child, (*points, ends((child, layer_of[child]))[0])))
    box_width = NARROW_WIDTH if is_down else BOX_WIDTH
    return Layout(
        box_width,
        max((box.left for box in boxes), default=0) + box_width + _MARGIN,
        max((box.top for box in boxes), default=0) + BOX_HEIGHT + _MARGIN,
        tuple(boxes),
        tuple(lines),
    )


def layers(parents: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """Return the length of the longest path to each box. Raises ValueError for a cycle."""
    found: dict[int, int] = dict.fromkeys(parents, 0)
    missing: dict[int, int] = dict.fromkeys(parents, 0)
    children: dict[int, list[int]] = {key: [] for key in parents}
    for child, its_parents in parents.items():
        for parent in its_parents:
            children[parent].append(child)
            missing[child] += 1
    ready = [key for key, count in missing.items() if not count]
    for key in ready:  # it grows while it is walked
        for child in children[key]:
            found[child] = max(found[child], found[key] + 1)
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    if len(ready) < len(found):
        raise ValueError("the jobs wait for each other in a circle")
    return found


def joint_count(parents: Mapping[int, Iterable[int]]) -> int:
    """Return how many joints a drawing needs."""
    layer_of = layers(parents)
    return sum(max(0, last - layer_of[parent]) for parent, last in _reach(parents, layer_of).items())


def _reach(parents: Mapping[int, Iterable[int]], layer_of: Mapping[int, int]) -> dict[int, int]:
    """Return the last layer with a joint of each box."""
    reach: dict[int, int] = {}
    for child, its_parents in parents.items():
        for parent in its_parents:
            reach[parent] = max(reach.get(parent, 0), layer_of[child] - 1)
    return reach


# ------------------------------------------------------------ the order in each layer


@dataclass(frozen=True, slots=True)
class _Links:
    before: dict[Item, list[Item]]
    """The items of the layer before that each one is linked to."""
    after: dict[Item, list[Item]]


def _rows(
    parents: Mapping[int, Iterable[int]], layer_of: Mapping[int, int]
) -> tuple[list[list[Item]], _Links]:
    """Return the items of each layer, and the links between neighboring layers."""
    reach = _reach(parents, layer_of)
    rows: list[list[Item]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for key, layer in layer_of.items():
        for there in range(layer, max(layer, reach.get(key, layer)) + 1):
            rows[there].append((key, there))
    items = [item for row in rows for item in row]
    links = _Links({item: [] for item in items}, {item: [] for item in items})

    def link(one: Item, other: Item) -> None:
        links.after[one].append(other)
        links.before[other].append(one)

    for key, layer in items:
        if layer > layer_of[key]:
            link((key, layer - 1), (key, layer))
    for child, its_parents in parents.items():
        for parent in its_parents:
            link((parent, layer_of[child] - 1), (child, layer_of[child]))
    return rows, links


def _untangled(rows: list[list[Item]], links: _Links) -> list[list[Item]]:
    """Order each layer by the places of its neighbors. Returns the order with the fewest crossings."""
    best, fewest = rows, _crossings(rows, links)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        rows = [list(row) for row in rows]
        near, order = (links.before, rows) if sweep % 2 == 0 else (links.after, rows[::-1])
        for fixed, row in pairwise(order):
            place = {item: float(at) for at, item in enumerate(fixed)}
            weighted = []
            for at, item in enumerate(row):
                # A box without neighbors there keeps its share of the way.
                places = [place[other] for other in near[item]] or [at * len(fixed) / len(row)]
                weighted.append((sum(places) / len(places), at, item))
            row[:] = [item for _, _, item in sorted(weighted)]
        if (count := _crossings(rows, links)) < fewest:
            best, fewest = rows, count
    return best


def _crossings(rows: Sequence[Sequence[Item]], links: _Links) -> int:
    """Return how many links cross: pairs whose ends are in opposite order."""
    total = 0
    for one, other in pairwise(rows):
        place = {item: at for at, item in enumerate(other)}
        seen: list[int] = []
        for item in one:
            ends = [place[child] for child in links.after[item]]
            total += sum(len(seen) - bisect(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


# ------------------------------------------------------------ the place of each


def _centers(
    rows: Sequence[Sequence[Item]], links: _Links, layer_of: Mapping[int, int], direction: _Direction
) -> dict[Item, float]:
    """Return the center of each item across the drawing: near its neighbors, without overlap."""

    def is_joint(item: Item) -> bool:
        return item[1] > layer_of[item[0]]

    def size(item: Item) -> int:
        return _JOINT if is_joint(item) else direction.across

    def weight(item: Item, near: Sequence[Item]) -> float:
        return _STIFFNESS if is_joint(item) and any(map(is_joint, near)) else 1.0

    apart = [
        [0.0, *((size(one) + size(other)) / 2 + direction.between_boxes for one, other in pairwise(row))]
        for row in rows
    ]
    centers: dict[Item, float] = {}
    for row, distances in zip(rows, apart, strict=True):
        offsets = list(accumulate(distances))
        middle = offsets[-1] / 2
        centers.update((item, offset - middle) for item, offset in zip(row, offsets, strict=True))
    both = {item: links.before[item] + links.after[item] for item in centers}
    for sweep in range(2 * _STRAIGHTENINGS + 1):
        # The last one looks at both sides.
        near = both if sweep == 2 * _STRAIGHTENINGS else links.after if sweep % 2 else links.before
        numbers = range(len(rows))
        for number in reversed(numbers) if sweep % 2 else numbers:
            row = rows[number]
            wanted = [
                sum(centers[other] for other in near[item]) / len(near[item]) if near[item] else centers[item]
                for item in row
            ]
            weights = [weight(item, near[item]) for item in row]
            centers.update(zip(row, _spread(wanted, weights, apart[number]), strict=True))
    first = min((center - size(item) / 2 for item, center in centers.items()), default=0.0)
    return {item: center - first for item, center in centers.items()}


def _spread(wanted: Sequence[float], weights: Sequence[float], distances: Sequence[float]) -> list[float]:
    """Return the places nearest to the wanted ones, by least squares, that are this far apart."""
    offsets = list(accumulate(distances))
    blocks: list[tuple[float, float, int]] = []  # the mean, the weight and the size of a run without gaps
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, total, count = want - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            other, its_weight, its_count = blocks.pop()
            mean = (mean * total + other * its_weight) / (total + its_weight)
            total, count = total + its_weight, count + its_count
        blocks.append((mean, total, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


# ---------------------------------------------------------------- folding

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
