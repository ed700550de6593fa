"""The servers of a large run, and the processes that send to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from faults.fuzzing.callers import USERS_FILE
from faults.fuzzing.campaign import Plan
from faults.fuzzing.part import VARIABLE
from faults.fuzzing.tally import Tally
from faults.fuzzing.vitals import Memory
from tests.system.stage import Process, Pulsed, Stage

SETTINGS = {"PULSE_GRPC_REFLECTION": "on", "PULSE_LEASE_TTL": "60s"}
"""Every RPC occurs, and the jobs that run at first still run when they are reported."""

# Of each RPC in a round. The first volley that Hypothesis makes is as small as can be, the others are not.
_VOLLEYS = 8
_SHOWN = 2000


class Part(Process):
    """A client. It reports how many inputs it has sent, and at its end the result."""

    @property
    def inputs(self) -> int:
        return max((report["inputs"] for report in self._reports() if "inputs" in report), default=0)

    @property
    def result(self) -> tuple[Tally, list[str]] | None:
        """The counts and the findings; None until the client has ended."""
        for report in self._reports():
            if "findings" in report:
                return Tally.from_json(report["tally"]), report["findings"]
        return None

    def _reports(self) -> Iterator[dict[str, Any]]:
        for line in self.log.splitlines():
            if line.startswith("{") and line.endswith("}"):
                yield json.loads(line)


@dataclass
class Target:
    """A server, its memory, and its clients."""

    name: str
    server: Pulsed
    guarded: bool
    memory: Memory
    parts: list[Part] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        """How many inputs it was sent so far."""
        return sum(part.inputs for part in self.parts)

    @property
    def tally(self) -> Tally:
        whole = Tally()
        for part in self.parts:
            if part.result is not None:
                whole.add(part.result[0])
        return whole

    @property
    def has_lost_a_client(self) -> bool:
        """Whether one has ended without a result."""
        return any(not part.is_running and part.result is None for part in self.parts)

    def take_sample(self) -> None:
        self.memory.note(self.inputs)

    def add_client(self, stage: Stage, inputs: int, seed: int) -> None:
        """Start a client that sends so many inputs."""
        plan = Plan(self.server.address, stage.dsn, seed, inputs, _VOLLEYS, self.guarded)
        name = f"client-{len(stage.processes)}"
        log, environment = stage.directory / f"{name}.log", {VARIABLE: json.dumps(asdict(plan))}
        part = Part(name, log, ["-m", "faults.fuzzing.part"], environment)
        stage.processes.append(part)
        self.parts.append(part)

    def complaints(self) -> list[str]:
        """The complaints about the answers and about the server."""
        found = [finding for part in self.parts if part.result is not None for finding in part.result[1]]
        found += [
            f"{part.name} has no result: {part.log[-_SHOWN:]}" for part in self.parts if not part.result
        ]
        found += [f"it logged {str(bug)[:_SHOWN]}" for bug in self.server.bugs[:5]]
        if not self.server.is_running:
            found.append(f"the process has ended: {self.server.log[-_SHOWN:]}")
        if self.memory.has_grown_too_much:
            found.append(f"its memory grows: {self.memory}")
        return [f"{self.name}: {complaint}" for complaint in found]


async def start_target(stage: Stage, *, guarded: bool) -> Target:
    """A server, with one user per role if it is guarded."""
    settings = dict(SETTINGS)
    if guarded:
        users = stage.directory / "users"
        users.write_text(USERS_FILE)
        settings["PULSE_AUTH_USERS_FILE"] = str(users)
    server = await stage.pulsed(**settings)
    target = Target("with users" if guarded else "open", server, guarded, Memory(server.pid))
    target.take_sample()
    return target
