"""The drawing of a workflow as plain numbers: layers, places, lines, and the folding of large ones."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_ui.workflows.layout import BOX_HEIGHT, BOX_WIDTH, MOST_BOXES, Box, fold, lay_out, unfolded
from tests.rows import each_row


@dataclass(frozen=True)
class Job:
    number: int
    topic: str = "page"
    when: str = "succeeded"
    parents: tuple[int, ...] = ()


def wide(pages: int) -> list[Job]:
    """One job, so many that wait for it, and two in a row that wait for all of those."""
    middle = range(2, pages + 2)
    return [
        Job(1, "list"),
        *(Job(number, "page", parents=(1,)) for number in middle),
        Job(pages + 2, "collect", parents=tuple(middle)),
        Job(pages + 3, "notify", "always", (pages + 2,)),
    ]


def chain(length: int) -> list[Job]:
    return [Job(number, parents=(number - 1,) if number > 1 else ()) for number in range(1, length + 1)]


def overlap(one: Box, other: Box, width: int) -> bool:
    return abs(one.left - other.left) < width and abs(one.top - other.top) < BOX_HEIGHT


shapes = st.integers(1, 40).flatmap(
    lambda size: st.tuples(
        st.just(set[int]()), *(st.sets(st.integers(1, number), max_size=3) for number in range(1, size))
    )
)


@given(shapes, st.booleans())
def test_boxes_do_not_overlap_and_lines_point_forward(shape: tuple[set[int], ...], is_down: bool) -> None:
    parents = {number: sorted(found) for number, found in enumerate(shape, 1)}
    layout = lay_out(parents, is_down=is_down)
    boxes, width = {box.key: box for box in layout.boxes}, layout.box_width
    assert boxes.keys() == parents.keys()
    assert not [pair for pair in combinations(layout.boxes, 2) if overlap(*pair, width)]
    assert {(line.parent, line.child) for line in layout.lines} == {
        (parent, child) for child, found in parents.items() for parent in found
    }
    for line in layout.lines:
        along = [point[1 if is_down else 0] for point in line.points]
        assert along == sorted(set(along))
        parent, child = boxes[line.parent], boxes[line.child]
        if is_down:
            assert line.points[0] == (parent.left + width // 2, parent.top + BOX_HEIGHT)
            assert line.points[-1] == (child.left + width // 2, child.top)
        else:
            assert line.points[0] == (parent.left + width, parent.top + BOX_HEIGHT // 2)
            assert line.points[-1] == (child.left, child.top + BOX_HEIGHT // 2)
    for box in layout.boxes:
        assert 0 <= box.left <= layout.width - width
        assert 0 <= box.top <= layout.height - BOX_HEIGHT


@given(shapes)
def test_long_lines_run_between_the_boxes(shape: tuple[set[int], ...]) -> None:
    layout = lay_out({number: sorted(found) for number, found in enumerate(shape, 1)})
    for line in layout.lines:
        for (left, top), (right, _) in zip(line.points[1:-1:2], line.points[2:-1:2], strict=True):
            for box in layout.boxes:
                is_there = box.left < right and left < box.left + BOX_WIDTH
                assert not is_there or not box.top <= top <= box.top + BOX_HEIGHT


def test_layout_is_the_same_every_time() -> None:
    parents = {
        number: random.Random(number).sample(range(1, number), min(2, number - 1)) for number in range(1, 100)
    }
    assert lay_out(parents) == lay_out(dict(parents))


def test_chain_is_a_straight_line() -> None:
    layout = lay_out({1: [], 2: [1], 3: [2], 4: [3]})
    assert len({box.top for box in layout.boxes}) == 1
    assert [box.left for box in layout.boxes] == sorted({box.left for box in layout.boxes})


def test_crossings_that_need_not_be_are_removed() -> None:
    layout = lay_out({1: [], 2: [], 3: [], 4: [3], 5: [2], 6: [1]})
    top = {box.key: box.top for box in layout.boxes}
    assert (top[6], top[5], top[4]) == (top[1], top[2], top[3])


def test_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        lay_out({1: [2], 2: [1]})


def test_nothing_can_be_laid_out() -> None:
    assert lay_out({}).boxes == ()


def test_200_boxes_are_drawn_one_by_one() -> None:
    boxes = unfolded(wide(MOST_BOXES - 3))
    assert boxes is not None
    assert len(boxes.members) == MOST_BOXES
    assert unfolded(wide(MOST_BOXES - 2)) is None


def test_10_003_jobs_are_four_boxes_within_a_second() -> None:
    started = time.thread_time()  # of the processor: other processes may have it in between
    jobs = wide(10_000)
    folded = fold(jobs)
    assert folded is not None
    layout = lay_out(folded.parents)
    assert time.thread_time() - started < 1
    assert [len(members) for members in folded.members.values()] == [1, 10_000, 1, 1]
    assert len(layout.boxes) == 4
    assert len(layout.lines) == 3


def test_siblings_with_another_condition_are_not_folded_together() -> None:
    jobs = [
        Job(1, "list"),
        *(Job(at, when="always" if at % 2 else "failed", parents=(1,)) for at in range(2, 400)),
    ]
    folded = fold(jobs)
    assert folded is not None
    assert [len(members) for members in folded.members.values()] == [1, 199, 199]


def test_parallel_chains_are_folded_by_layer() -> None:
    jobs = []
    for at in range(300):
        jobs += [Job(2 * at + 1, "fetch"), Job(2 * at + 2, "parse", parents=(2 * at + 1,))]
    folded = fold(jobs)
    assert folded is not None
    assert folded.parents == {1: [], 2: [1]}
    assert {box: len(members) for box, members in folded.members.items()} == {1: 300, 2: 300}


@each_row(
    "jobs",
    [
        chain(MOST_BOXES + 1),
        [Job(number, parents=tuple(range(1, number))) for number in range(1, 100)],
    ],
)
def test_what_cannot_be_read_is_not_drawn(jobs: list[Job]) -> None:
    assert unfolded(jobs) is None
    assert fold(jobs) is None


def test_small_workflow_can_be_folded() -> None:
    folded = fold(wide(5))
    assert folded is not None
    assert folded.members == {1: [1], 2: [2, 3, 4, 5, 6], 7: [7], 8: [8]}
