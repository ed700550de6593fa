"""Inspects the parameters and the result of a function, without calling it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """True if a call of it returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def is_generator(function: Callable[..., Any]) -> bool:
    """True if a call of it returns a generator."""
    inner = _called(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def takes(function: Callable[..., Any], *args: object) -> bool:
    """False if a call with these arguments is a TypeError. True if that cannot be found out."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # such as a function in C
    try:
        signature.bind(*args)
    except TypeError:
        return False
    return True


def _called(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return getattr(function, "__call__", function)  # noqa: B004
