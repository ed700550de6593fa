"""Errors as a handler raises them, with their tracebacks."""

from __future__ import annotations

from collections.abc import Callable


def raised(function: Callable[[], object]) -> BaseException:
    """Return the error that the function raises."""
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")
