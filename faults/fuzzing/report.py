"""The report of a large run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from faults.fuzzing.tally import Tally
from faults.fuzzing.vitals import Memory


@dataclass(frozen=True)
class Outcome:
    """The counts and the memory of each server, by name, and all complaints."""

    seed: int
    seconds: float
    tallies: Mapping[str, Tally]
    memories: Mapping[str, Memory]
    complaints: list[str]

    @property
    def is_good(self) -> bool:
        return not self.complaints


def as_text(outcome: Outcome) -> str:
    whole = Tally()
    for tally in outcome.tallies.values():
        whole.add(tally)
    lines = [
        "",
        f"{whole.inputs:,} inputs in {outcome.seconds:.0f} s, seed {outcome.seed}; "
        f"{whole.well_formed:,} well-formed calls beside them",
        *(f"  {name}: {tally.inputs:,} inputs" for name, tally in outcome.tallies.items()),
        "",
        _listed("kinds of inputs", whole.kinds),
        _listed("kinds of RPCs", whole.streaming),
        _listed("statuses", whole.statuses),
        _listed("what bare connections received", whole.wires),
        _listed("RPCs, and how many calls were served", _with_served(whole)),
        "memory",
        *(f"  {name}: {memory}" for name, memory in outcome.memories.items()),
        "",
        f"wrong: {len(outcome.complaints)}",
        *(f"  {complaint}" for complaint in outcome.complaints),
    ]
    return "\n".join(lines)


def _with_served(tally: Tally) -> Counter[str]:
    return Counter({f"{name} ({tally.served[name]:,})": count for name, count in tally.rpcs.items()})


def _listed(title: str, counts: Counter[str]) -> str:
    return "\n".join([title, *(f"  {count:>9,}  {name}" for name, count in counts.most_common()), ""])
