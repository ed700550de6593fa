"""Policies of topics in a server: how jobs run, how many at once, and the loops that keep both in force."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.dispatch.publisher import Publisher
from pulse_server.loops import Loop
from pulse_server.postgres.database import Database
from pulse_server.postgres.limit_owners import PostgresLimitOwnerRepo
from pulse_server.postgres.limits import PostgresLimitRepo
from pulse_server.postgres.policies import PostgresPolicyRepo
from pulse_server.service.dispatch import Gate
from pulse_server.service.limit_policies import LimitPolicies
from pulse_server.service.limit_sweep import LimitSweep
from pulse_server.service.limits import LimitsOfTopics
from pulse_server.service.own_topics import OwnTopics
from pulse_server.service.policies import Policies
from pulse_server.service.run_policies import RunPolicies
from pulse_server.settings import Settings
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.grpc.callers import Callers
from pulse_server.transport.grpc.limits import LimitRpcs
from pulse_server.transport.grpc.policies import PolicyRpcs
from pulse_server.wakeups import WakeupLine

# A change is announced to the other servers; behind a pooler this is how long they take to read it.
POLICIES_INTERVAL = timedelta(seconds=2)


class PoliciesInForce:
    def __init__(
        self,
        settings: Settings,
        database: Database,
        limits: PostgresLimitRepo,
        owners: PostgresLimitOwnerRepo,
        publisher: Publisher,
        gate: Gate,
        line: WakeupLine,
        metrics: Metrics,
    ) -> None:
        self._kept = settings.retention.by_status
        self.repo = PostgresPolicyRepo(database, settings.grace)
        self._limit_repo = limits
        self._publisher = publisher
        self.run = RunPolicies(self.repo, settings.run, interval=POLICIES_INTERVAL)
        self.limits = LimitPolicies(owners, limits, publisher, gate.refresh, interval=POLICIES_INTERVAL)
        self.sweep = LimitSweep(limits, gate, publisher, metrics)
        line.listen(self.run.heard)
        line.listen(self.limits.heard)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.run.loop, self.limits.loop, self.sweep.loop)

    async def prime(self) -> None:
        """Read the policies, and put limits in force. A server that cannot read them must not start."""
        await self.run.refresh()
        await self.limits.prime()

    def rpcs(self, callers: Callers, own_topics: OwnTopics) -> tuple[PolicyRpcs, LimitRpcs]:
        policies = Policies(self.repo, self._kept, self.run, self.limits, self._publisher)
        limits = LimitsOfTopics(self._limit_repo, self.limits, self._publisher)
        return PolicyRpcs(policies, callers, own_topics), LimitRpcs(limits, callers, own_topics)
