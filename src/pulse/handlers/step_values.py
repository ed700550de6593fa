"""Encodes and decodes the values of steps. The annotation of a step's function gives the type."""

from __future__ import annotations

import collections.abc
import functools
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

from pulse.errors import InvalidArgument, InvalidHandler
from pulse.outcomes import Discard
from pulse.payload import Decode, UndecodableArgs, decoder_for, encode

_NOTHING = b"null"
# What functions return. To read it takes longer than the rest of a step.
_known: weakref.WeakKeyDictionary[types.FunctionType, Any] = weakref.WeakKeyDictionary()
_AWAITABLES = (collections.abc.Awaitable, collections.abc.Coroutine)


def encode_step(name: str, function: Callable[..., Any], value: object, most_bytes: int) -> bytes:
    """Return the value of a step as it is stored. Raises Discard: a further attempt would return the same."""
    if isinstance(value, bytes) and _returned(function) is not bytes:
        raise Discard(f"Step {name!r} returned bytes: annotate its function with `-> bytes`.")
    try:
        data = _NOTHING if value is None else encode(value, f"value of step {name!r}")
    except InvalidArgument as error:
        raise Discard(error.message) from None
    if len(data) > most_bytes:
        raise Discard(
            f"Step {name!r} returned {len(data)} bytes, and the steps of a job may have {most_bytes} "
            "together. Store large data elsewhere and return a reference to it, or raise "
            "PULSE_MAX_STEP_BYTES of pulsed."
        )
    return data


def decoder_of(source: Any, *, is_type: bool = False) -> Decode:
    """Return the reader of what this function returns, or of this type. Raises Discard if it does not fit."""
    annotation = source if is_type else _returned(source)
    read = _decoder(Any if annotation is None and is_type else annotation)

    def decode(data: bytes) -> Any:
        try:
            return read(data)
        except UndecodableArgs as error:
            raise Discard(f"A stored value cannot be read as {annotation!r}: {error.problem}") from None

    return decode


@functools.lru_cache(maxsize=1024)
def _decoder(annotation: Any) -> Decode:
    return decoder_for(annotation)


def _returned(function: Any) -> Any:
    """Return the annotated return type of the function; for a coroutine, the type of its result."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function  # a class returns its instance
    if not hasattr(function, "__annotations__") and callable(function):
        function = type(function).__call__
    if "return" not in getattr(function, "__annotations__", {}):
        return Any
    function = getattr(function, "__func__", function)  # each access makes a new method object
    if isinstance(function, types.FunctionType) and function in _known:
        return _known[function]
    try:
        annotation = typing.get_type_hints(function, include_extras=True)["return"]
    except (NameError, TypeError) as error:
        raise InvalidHandler(f"The annotations of {function!r} cannot be read: {error}.") from None
    if typing.get_origin(annotation) in _AWAITABLES:
        annotation = typing.get_args(annotation)[-1]
    if isinstance(function, types.FunctionType):
        _known[function] = annotation
    return annotation
