"""A job's metadata: the entries of its producer, and the trace context."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pulse_text import printable

_TRACE_ENTRIES = "pulse.trace"
"""The entry in which the SDK lists the ones it added."""
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class MetadataView:
    given: tuple[tuple[str, str], ...]
    """The producer's own entries, by name."""
    trace: tuple[tuple[str, str], ...]
    """The entries of the trace context."""
    trace_id: str
    """Empty if there is none, or it is invalid."""


def metadata_view(metadata: Mapping[str, str]) -> MetadataView:
    """Return the metadata in its two parts, as printable text."""
    carrying = {"traceparent", "tracestate", *metadata.get(_TRACE_ENTRIES, "").split()}
    entries = sorted((name, value) for name, value in metadata.items() if name != _TRACE_ENTRIES)
    parent = _TRACE_PARENT.fullmatch(metadata.get("traceparent", ""))
    return MetadataView(
        tuple(_readable(entry) for entry in entries if entry[0] not in carrying),
        tuple(_readable(entry) for entry in entries if entry[0] in carrying),
        parent[1] if parent else "",
    )


def _readable(entry: tuple[str, str]) -> tuple[str, str]:
    name, value = entry
    return printable.one_line(name), printable.lines(value)
