"""Tests over the rows of a table."""

import pytest

from tests.rows import each_row


def test_failure_names_its_row() -> None:
    seen = []

    @each_row("number", [1, 2])
    @each_row("letter, word", [("a", "x"), ("b", "y")])
    def test(number: int, letter: str, word: str) -> None:
        seen.append((number, letter, word))
        assert (number, letter) != (2, "a")

    with pytest.raises(AssertionError) as failed:
        test()
    assert seen == [(1, "a", "x"), (1, "b", "y"), (2, "a", "x")]
    assert failed.value.__notes__ == ["in the row letter='a', word='x'", "in the row number=2"]


async def test_coroutine_is_awaited_for_each_row() -> None:
    seen = []

    @each_row("number", range(3))
    async def test(number: int) -> None:
        seen.append(number)

    await test()
    assert seen == [0, 1, 2]


@each_row("rows", [[], [pytest.param(1)]])
def test_rows_that_would_prove_nothing_are_refused(rows: list[object]) -> None:
    with pytest.raises(AssertionError):
        each_row("number", rows)
