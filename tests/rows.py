"""One test over the rows of a table, where each row would be a test of its own with parametrize.

A test of its own costs a few milliseconds in every process of pytest-xdist. Use parametrize where a row needs
fixtures of its own.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

Test = Callable[..., Any]
_PARAM = type(pytest.param())


def each_row(names: str, rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the test once for each row, like pytest.mark.parametrize. A failure names its row."""
    columns = [name.strip() for name in names.split(",")]
    given = list(rows)
    assert given, "a table without rows proves nothing"
    assert not any(type(row) is _PARAM for row in given), "rows are plain: pytest.param is for parametrize"
    table = given if len(columns) > 1 else [(row,) for row in given]

    def over_the_table(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for row in table:
                values = dict(zip(columns, row, strict=True))
                with _named(values):
                    test(**fixtures, **values)

        @functools.wraps(test)
        async def run_async(**fixtures: Any) -> None:
            for row in table:
                values = dict(zip(columns, row, strict=True))
                with _named(values):
                    await test(**fixtures, **values)

        wrapper = run_async if inspect.iscoroutinefunction(test) else run
        # pytest reads the fixtures of a test from its signature.
        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        assert len(kept) + len(columns) == len(signature.parameters), f"{test.__name__} takes {names}"
        wrapper.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return wrapper

    return over_the_table


@contextmanager
def _named(values: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except BaseException as failure:
        failure.add_note("in the row " + ", ".join(f"{name}={value!r}" for name, value in values.items()))
        raise
