"""Which memory of the process counts as memory of lines."""

from __future__ import annotations

from pulse_server.doors.lines import LINES_LOOKS_UNTIL_FREED, LINES_MEMORY, LINES_SPARE_MEMORY, LineMemory

SOME = 100 * 1024 * 1024
MUCH = 2 * LINES_MEMORY


def test_lines_that_take_the_memory_to_its_limit_end_and_may_come_back_once_it_is_free() -> None:
    memory = LineMemory()
    memory.update(SOME, open_lines=0)
    memory.update(LINES_MEMORY, open_lines=20)
    assert not memory.is_short

    memory.update(LINES_MEMORY + 1, open_lines=20)
    assert memory.is_short

    memory.update(SOME, open_lines=0)
    assert not memory.is_short


def test_memory_that_was_there_before_the_first_line_is_not_theirs() -> None:
    memory = LineMemory()

    memory.update(MUCH, open_lines=0)
    memory.update(MUCH + LINES_SPARE_MEMORY, open_lines=20)
    assert not memory.is_short

    memory.update(MUCH + LINES_SPARE_MEMORY + 1, open_lines=20)
    assert memory.is_short


def test_memory_that_stays_when_all_lines_have_ended_keeps_none_from_being_opened() -> None:
    memory = LineMemory()
    memory.update(SOME, open_lines=0)
    memory.update(MUCH, open_lines=20)

    looks = 0
    while memory.is_short:
        memory.update(MUCH, open_lines=0)
        looks += 1

    assert looks == LINES_LOOKS_UNTIL_FREED
    memory.update(MUCH, open_lines=20)
    assert not memory.is_short


def test_limit_falls_with_the_memory() -> None:
    memory = LineMemory()
    memory.update(MUCH, open_lines=0)
    memory.update(SOME, open_lines=1)

    memory.update(LINES_MEMORY + 1, open_lines=1)

    assert memory.is_short
