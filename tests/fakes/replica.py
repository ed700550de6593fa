"""What the services of one server stand on, all of it in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulse_server.service.signals import Signals
from tests.fakes.jobs import InMemoryJobRepo
from tests.fakes.store import Store
from tests.fakes.time_machines import InMemoryTimeMachine
from tests.fakes.wakeups import FakeDispatcher, FakeWakeupLine


@dataclass
class Replica:
    repo: InMemoryJobRepo = field(default_factory=InMemoryJobRepo)
    line: FakeWakeupLine = field(default_factory=FakeWakeupLine)
    dispatcher: FakeDispatcher = field(default_factory=FakeDispatcher)

    def __post_init__(self) -> None:
        self.store = Store(self.repo, InMemoryTimeMachine(self.repo))
        self.signals = Signals(self.line)
        self.signals.attach(self.dispatcher)
