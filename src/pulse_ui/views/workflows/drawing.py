"""A workflow as shapes that a template draws: boxes with their texts, and lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import pulse
from pulse_text import printable
from pulse_ui.views.workflows import states
from pulse_ui.views.workflows.bars import Part, bar
from pulse_ui.views.workflows.folding import Folded
from pulse_ui.views.workflows.layout import BOX_HEIGHT, Box, Line, Point, lay_out
from pulse_ui.words import count

_SIDES = 36
"""Pixels of a box beside its texts."""
_NAME_COLUMN, _WORDS_COLUMN = 8.0, 6.0
"""The width of a character, of the usual fonts a wide one. The template clips longer texts."""
_BAR_SIDES = 16
_ARROW = 6


@dataclass(frozen=True, slots=True)
class Shape:
    number: int
    left: int
    top: int
    link: str
    style: str
    """Its class: the kind of its job, or the most urgent kind of its jobs."""
    mark: str
    name: str
    words: str
    title: str
    """All of it in a sentence."""
    parts: tuple[Part, ...]
    """The bar of a box of several jobs, in pixels."""


@dataclass(frozen=True, slots=True)
class Drawing:
    is_down: bool
    """From top to bottom, for narrow screens; else from left to right."""
    box_width: int
    box_height: int
    bar_left: int
    width: int
    height: int
    shapes: tuple[Shape, ...]
    lines: str
    conditional_lines: str
    """The ends of lines to jobs that run if one failed, or always."""
    arrows: str

    @property
    def is_folded(self) -> bool:
        return any(shape.parts for shape in self.shapes)


def draw(
    jobs: Mapping[int, pulse.WorkflowJob],
    folded: Folded,
    now: datetime,
    link: Callable[[Sequence[int]], str],
    *,
    is_down: bool = False,
) -> Drawing:
    """Return the drawing. `link` is the URL of the jobs in a box."""
    layout = lay_out(folded.parents, is_down=is_down)
    shapes = []
    for box in layout.boxes:
        numbers = folded.members[box.key]
        make = _one if len(numbers) == 1 else _several
        shapes.append(make([jobs[number] for number in numbers], box, layout.box_width, link(numbers), now))
    lines, conditional = _segments(layout.lines, jobs)
    return Drawing(
        is_down,
        layout.box_width,
        BOX_HEIGHT,
        _BAR_SIDES // 2,
        layout.width,
        layout.height,
        tuple(shapes),
        _path(lines, is_down),
        _path(conditional, is_down),
        "".join(_arrow(point, is_down) for point in dict.fromkeys(line.points[-1] for line in layout.lines)),
    )


def cut(text: str, columns: int) -> str:
    """Return the text cut to a width, in which a character of Chinese or Japanese counts twice."""
    width = 0
    for at, character in enumerate(text):
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width > columns:
            return text[: max(at - 1, 0)] + "…"
    return text


def _one(jobs: Sequence[pulse.WorkflowJob], box: Box, width: int, link: str, now: datetime) -> Shape:
    (job,) = jobs
    kind, name = states.kind_of(job), printable.one_line(job.name)
    on = "" if job.topic == job.name else f" on {printable.one_line(job.topic)}"
    return Shape(
        job.number,
        box.left,
        box.top,
        link,
        kind.lower(),
        states.MARKS[kind],
        cut(name, _columns(width, _NAME_COLUMN)),
        _words(job.when, states.brief(job, now), width),
        f"{name}{on}: {states.detail(job, now)}{_RUNS.get(job.when, '')}",
        (),
    )


def _several(jobs: Sequence[pulse.WorkflowJob], box: Box, width: int, link: str, now: datetime) -> Shape:
    counts = states.counted(jobs)
    said = states.counts_in_words(counts)
    first, worst = jobs[0], next(iter(counts))
    topic, number = printable.one_line(first.topic), count(len(jobs))
    return Shape(
        first.number,
        box.left,
        box.top,
        link,
        worst.lower(),
        states.MARKS[worst],
        f"{cut(topic, _columns(width, _NAME_COLUMN) - len(number) - 3)} × {number}",
        _words(first.when, said, width),
        f"{number} jobs on {topic}: {said}{_RUNS.get(first.when, '')}",
        # Done jobs first, as a bar fills up.
        bar(
            {kind.lower(): counts[kind] for kind in reversed(counts)},
            len(jobs),
            width=width - _BAR_SIDES,
            least=2,
        ),
    )


_RUNS = {"failed": " (runs if one failed)", "always": " (runs always)"}


def _words(when: str, said: str, width: int) -> str:
    """Return how a box stands, with its condition if both fit."""
    columns = _columns(width, _WORDS_COLUMN)
    condition = states.CONDITIONS.get(when)
    whole = f"{condition} · {said}" if condition else said
    return whole if len(whole) <= columns else cut(said, columns)


def _columns(width: int, column: float) -> int:
    return int((width - _SIDES) / column)


Segment = tuple[Point, Point]


def _segments(
    lines: Iterable[Line], jobs: Mapping[int, pulse.WorkflowJob]
) -> tuple[list[Segment], list[Segment]]:
    """Return each segment once, apart from the last ones of lines to jobs with a condition."""
    plain: dict[Segment, None] = {}
    conditional: dict[Segment, None] = {}
    for line in lines:
        *way, last = pairwise(line.points)
        plain.update(dict.fromkeys(way))
        (conditional if jobs[line.child].when in states.CONDITIONS else plain)[last] = None
    return list(plain), list(conditional)


def _path(segments: Iterable[Segment], is_down: bool) -> str:
    return "".join(_curve(*segment, is_down) for segment in segments)


def _curve(start: Point, end: Point, is_down: bool) -> str:
    (x1, y1), (x2, y2) = start, end
    if x1 == x2 or y1 == y2:
        return f"M{x1} {y1}L{x2} {y2}"
    if is_down:
        middle = (y1 + y2) // 2
        return f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def _arrow(point: Point, is_down: bool) -> str:
    x, y = point
    if is_down:
        return f"M{x} {y}l-4 -{_ARROW}h8z"
    return f"M{x} {y}l-{_ARROW} -4v8z"
