"""Finds NaN and infinity in arguments: JSON has neither, and an encoder writes null in their place."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

# A double of MessagePack, and one whose exponent is all ones.
_DOUBLE = b"\xcb"
_NON_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def find_non_finite(args: object) -> str | None:
    """Return the path of a float that is NaN or infinite, or None.

    The arguments are packed, which is quick, and walked through only if that shows such a float.
    """
    try:
        packed = _packer.encode(args)
    except Exception:  # what only the encoder of JSON can write
        return _find(args, "$")
    if _DOUBLE not in packed:  # most arguments with a None have no float at all
        return None
    # These bytes can be part of a text by chance.
    return _find(args, "$") if _NON_FINITE.search(packed) else None


def _find(value: Any, path: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    for name, member in _members(value):
        if (found := _find(member, f"{path}{name}")) is not None:
            return found
    return None


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{name}", member) for name, member in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{at}]", member) for at, member in enumerate(value))
    elif isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif dataclasses.is_dataclass(value):
        yield from ((f".{each.name}", getattr(value, each.name)) for each in dataclasses.fields(value))
    elif hasattr(type(value), "model_fields"):  # a pydantic model
        yield from ((f".{name}", member) for name, member in dict(value).items())


def _to_plain(value: Any) -> Any:
    if hasattr(type(value), "model_fields"):
        return dict(value)
    return str(value)


_packer = msgspec.msgpack.Encoder(enc_hook=_to_plain)
