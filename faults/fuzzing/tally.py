"""Counts what was sent and what came back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc

from faults.fuzzing.answers import Answer, Reaction
from faults.fuzzing.contract import BY_PATH
from faults.fuzzing.inputs import Call, Wire


@dataclass
class Tally:
    """By kind of input, by RPC, by status, and by RPC and status."""

    kinds: Counter[str] = field(default_factory=Counter)
    rpcs: Counter[str] = field(default_factory=Counter)
    streaming: Counter[str] = field(default_factory=Counter)
    """By the kind of RPC."""
    statuses: Counter[str] = field(default_factory=Counter)
    wires: Counter[str] = field(default_factory=Counter)
    """What bare connections received."""
    served: Counter[str] = field(default_factory=Counter)
    """By RPC: calls that ended well, or got messages."""
    well_formed: int = 0
    """Calls of the well-formed neighbor."""

    @property
    def inputs(self) -> int:
        return sum(self.kinds.values())

    def count_call(self, call: Call, answer: Answer) -> None:
        self.kinds[call.kind] += 1
        rpc = BY_PATH.get(call.path)
        name = rpc.name if rpc else "(no method)"
        self.rpcs[name] += 1
        self.streaming[rpc.kind if rpc else "(no method)"] += 1
        self.statuses[_named(call, answer)] += 1
        if answer.code is grpc.StatusCode.OK or answer.messages:
            self.served[name] += 1

    def count_wire(self, wire: Wire, reaction: Reaction) -> None:
        self.kinds[wire.kind] += 1
        for answer in reaction.answers:
            self.wires[answer.code.name if answer.code else ""] += 1
        if not reaction.answers:
            self.wires["(connection closed)" if reaction.was_closed else "(no answer)"] += 1

    def add(self, other: Tally) -> None:
        for name, counts in vars(other).items():
            if isinstance(counts, Counter):
                getattr(self, name).update(counts)
        self.well_formed += other.well_formed

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Tally:
        tally = cls(well_formed=fields.pop("well_formed"))
        for name, counts in fields.items():
            setattr(tally, name, Counter(counts))
        return tally


def _named(call: Call, answer: Answer) -> str:
    if answer.code is not None:
        return answer.code.name
    return "(hung up)" if call.hangs_up else "(stream left)"
