"""The steps of a job, as `Pulse.steps` returns them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pulse.models.times import time_of
from pulse.payload import decode_json
from pulse.v1 import pulse_pb2 as pb


class StepKind(StrEnum):
    """What a step is."""

    STEP = "step"
    SLEEP = "sleep"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """A step of a job: something done, a sleep, or a signal."""

    name: str
    kind: StepKind
    attempt: int
    """The attempt that stored it, or that waits for it."""
    started_at: datetime | None
    stored_at: datetime | None
    """None: a signal that has not come."""
    until: datetime | None = None
    """The end of a sleep, or of the wait for a signal."""
    size: int = 0
    """Of the value, in bytes."""
    timed_out: bool = False
    """Whether the signal did not come in time."""
    value_bytes: bytes | None = None
    """The value, if it was requested and is kept."""

    @property
    def value(self) -> Any:
        """The value as plain JSON values. Raises InvalidArgument if it is something else."""
        return None if self.value_bytes is None else decode_json(self.value_bytes, "value")


def step_info(view: pb.StepView) -> StepInfo:
    """Return the step in a message."""
    return StepInfo(
        name=view.name,
        kind=StepKind(view.kind),
        attempt=view.attempt,
        started_at=time_of(view, "started_at"),
        stored_at=time_of(view, "stored_at"),
        until=time_of(view, "until"),
        size=view.size,
        timed_out=view.timed_out,
        value_bytes=view.value if view.HasField("value") else None,
    )
