"""What came back."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc


@dataclass(frozen=True)
class Answer:
    """How a call ended. `code` is None where it did not: its caller left first."""

    code: grpc.StatusCode | None
    details: str = ""
    is_pulseds_own: bool = False
    """Whether the server says that the sentence is its own, not gRPC's."""
    messages: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Reaction:
    """What a bare connection was told: the answers to its calls, if there were any, and the other bytes."""

    answers: tuple[Answer, ...] = ()
    data: bytes = field(default=b"", repr=False)
    was_closed: bool = False
