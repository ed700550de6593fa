"""The trace context in a job's metadata, and how it is kept apart from the user's entries."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from pulse import tuning

ADDED = "pulse.trace"
"""The key that lists the entries added to a job's metadata. All others are the user's."""


def add_context(metadata: MutableMapping[str, str], context: Mapping[str, str]) -> None:
    """Add the context to a job's metadata, unless the user gave one or it does not fit."""
    _remove_context(metadata)  # of another job, whose metadata the user read and passes on
    if any(key in metadata for key in context):
        return
    added = {**context, ADDED: " ".join(context)}
    if not _fits(metadata, added):
        return  # the server would refuse the job
    for key, value in added.items():
        metadata[key] = value


def spread_context(carrier: Mapping[str, str], metadata: MutableMapping[str, str]) -> None:
    """Add the context that is in one job's metadata to that of another job."""
    if ADDED in carrier:
        add_context(metadata, {key: carrier[key] for key in carrier[ADDED].split()})


def without_context(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of the user."""
    given = dict(metadata)
    _remove_context(given)
    return given


def _remove_context(metadata: MutableMapping[str, str]) -> None:
    if ADDED in metadata:
        for key in [*metadata[ADDED].split(), ADDED]:
            if key in metadata:
                del metadata[key]


def _fits(metadata: Mapping[str, str], added: Mapping[str, str]) -> bool:
    if len(metadata) + len(added) > tuning.METADATA_ENTRIES:
        return False
    items = [*metadata.items(), *added.items()]
    return sum(len(key.encode()) + len(value.encode()) for key, value in items) <= tuning.METADATA_BYTES
