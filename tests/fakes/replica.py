"""What the services of one server stand on, all of it in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pulse_server.dispatch.claims import Claims, Reconciler, SparedWorkers
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.publisher import Publisher
from pulse_server.service.dispatch import Gate
from pulse_server.telemetry.metrics import Metrics
from pulse_server.watchers import Watchers
from tests.fakes.dispatch import FakeDispatchRepo, RecordingRoster
from tests.fakes.jobs import FakeJobRepo
from tests.fakes.limits import FakeLimitRepo
from tests.fakes.store import LEASE, Store
from tests.fakes.time_machines import InMemoryTimeMachine

NEVER = timedelta(hours=1)


@dataclass
class Replica:
    repo: FakeJobRepo = field(default_factory=FakeJobRepo)
    roster: RecordingRoster = field(default_factory=RecordingRoster)

    def __post_init__(self) -> None:
        self.line = self.roster.line
        self.store = Store(self.repo, InMemoryTimeMachine(self.repo))
        self.metrics = Metrics()
        self.watchers = Watchers(self.line)
        self.publisher = Publisher(
            self.metrics, self.watchers, self.roster, self.line, None, nudge_settler=lambda: None
        )
        self.limits = FakeLimitRepo()
        self.spared_workers = SparedWorkers(self.repo, LEASE)
        self.claims = Claims(self.repo, self.limits, self.publisher, self.spared_workers, LEASE)
        self.switches = FakeDispatchRepo()
        self.gate = Gate(self.switches, self.roster, self.claims, interval=NEVER)
        self.reconciler = Reconciler(self.claims, self.roster, interval=NEVER)
        self.line.listen(self.gate.heard)
        self.hub = Hub(self.roster, self.claims, self.reconciler, self.line, tick=NEVER)
