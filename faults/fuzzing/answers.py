"""The answers to inputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc


@dataclass(frozen=True)
class Answer:
    """How a call ended. `code` is None where it did not: its caller left first."""

    code: grpc.StatusCode | None
    details: str = ""
    is_pulseds_own: bool = False
    """Whether the server marks the sentence as its own, not gRPC's."""
    messages: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Reaction:
    """What a bare connection received: the answers to its calls, if any, and the other bytes."""

    answers: tuple[Answer, ...] = ()
    data: bytes = field(default=b"", repr=False)
    was_closed: bool = False
