"""Messages from the arguments of a caller."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, TypeVar

from pulse.errors import InvalidArgument

Message = TypeVar("Message")

# The errors of protobuf for a value that a field cannot hold.
_REFUSALS = (TypeError, ValueError, OverflowError, AttributeError)


def message(kind: Callable[..., Message], **fields: Any) -> Message:
    """Return the message. Raises InvalidArgument with the name of a field that cannot be sent."""
    try:
        return kind(**fields)
    except _REFUSALS as error:
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except _REFUSALS as refusal:
                raise InvalidArgument(f"{name}={reprlib.repr(value)} cannot be sent: {refusal}.") from None
        raise InvalidArgument(f"This cannot be sent: {error}.") from None
