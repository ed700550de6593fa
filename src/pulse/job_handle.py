"""The result of an enqueue."""

from __future__ import annotations

import msgspec


# A struct and not a dataclass: enqueue_many makes thousands, and a frozen dataclass takes ten times as long.
class JobHandle(msgspec.Struct, frozen=True, gc=False):
    """A stored job."""

    id: str
    topic: str
    duplicate: bool = False
    """True if the job existed before: the same key or `job_id` was used earlier, or it holds the unique key.

    A repeat that the SDK sent after a lost answer is not a duplicate.
    """
    replaced: bool = False
    """True for a duplicate that took the arguments and options of this enqueue."""
