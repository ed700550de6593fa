"""Who the server takes a client for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller as the server sees it."""

    user: str | None
    """None: the server is open, it asks nobody who they are."""
    role: str
    """admin, operator, producer, worker or viewer."""
    methods: frozenset[str]
    """The calls of the contract that this role may make, such as RetryJobs."""

    def may(self, method: str) -> bool:
        """True if the role may make this call."""
        return method in self.methods


def identity(response: pb.WhoAmIResponse) -> Identity:
    """Read the identity off the wire."""
    return Identity(response.user or None, response.role, frozenset(response.methods))
