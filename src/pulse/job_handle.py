"""The result of an enqueue."""

from __future__ import annotations

import msgspec


# A struct and not a dataclass: enqueue_many makes thousands, and a frozen dataclass takes ten times as long.
class JobHandle(msgspec.Struct, frozen=True, gc=False):
    """A stored job."""

    id: str
    topic: str
    duplicate: bool = False
    """True if the job existed before: the same key or the same `job_id` was used earlier.

    A repeat that the SDK sent after a lost answer is not a duplicate.
    """
