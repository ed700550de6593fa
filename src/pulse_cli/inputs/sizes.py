"""Options whose value is a number of bytes."""

from __future__ import annotations

import re

import click

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgt])i?b?", re.IGNORECASE)


def size(text: str) -> int:
    """Convert the value of an option to bytes. K, M, G and T are powers of 1024, as in Kubernetes' Mi."""
    match = _SIZE.fullmatch("".join(text.split()))
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size: write a number with a unit, such as 512M or 2G.")
    return int(float(match[1]) * _UNITS[match[2].lower()])
