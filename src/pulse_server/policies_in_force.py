"""Policies of topics in a server: how jobs run, how many at once, and the loops that keep both in force."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.policies import Kept
from pulse_server.domain.run_policies import RunPolicy
from pulse_server.domain.status import JobStatus
from pulse_server.loops import Loop
from pulse_server.postgres.database import Database
from pulse_server.postgres.policies import PostgresPolicyRepo
from pulse_server.repos.dispatch import FlowOwnerRepo, FlowRepo
from pulse_server.repos.wakeups import WakeupLine
from pulse_server.service.dispatch import Gate
from pulse_server.service.flow_policies import FlowPolicies
from pulse_server.service.flow_sweep import FlowSweep
from pulse_server.service.limits import LimitsOfTopics
from pulse_server.service.own_topics import OwnTopics
from pulse_server.service.policies import Policies
from pulse_server.service.run_policies import RunPolicies
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.grpc.callers import Callers
from pulse_server.transport.grpc.limits import LimitRpcs
from pulse_server.transport.grpc.policies import PolicyRpcs

# A change is announced to the other servers; behind a pooler this is how long they take to read it.
POLICIES_INTERVAL = timedelta(seconds=2)


class PoliciesInForce:
    def __init__(
        self,
        server: RunPolicy,
        database: Database,
        flow: FlowRepo,
        owners: FlowOwnerRepo,
        publisher: Publisher,
        gate: Gate,
        line: WakeupLine,
        metrics: Metrics,
    ) -> None:
        """`server` is how jobs run by the settings of this server."""
        self._repo = PostgresPolicyRepo(database)
        self._flow_repo = flow
        self._publisher = publisher
        self.run = RunPolicies(self._repo, server, interval=POLICIES_INTERVAL)
        self.flow = FlowPolicies(owners, flow, publisher, gate.refresh, interval=POLICIES_INTERVAL)
        self.sweep = FlowSweep(flow, gate, publisher, metrics)
        line.listen(self.run.heard)
        line.listen(self.flow.heard)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.run.loop, self.flow.loop, self.sweep.loop)

    async def prime(self) -> None:
        """Read the policies, and put limits in force. A server that cannot must not start."""
        await self.run.refresh()
        await self.flow.apply()

    def rpcs(
        self, kept: Mapping[JobStatus, Kept], callers: Callers, own_topics: OwnTopics
    ) -> tuple[PolicyRpcs, LimitRpcs]:
        """`kept` is how long the settings of this server keep jobs."""
        policies = Policies(self._repo, kept, self.run, self.flow, self._publisher)
        limits = LimitsOfTopics(self._flow_repo, self.flow, self._publisher)
        return PolicyRpcs(policies, callers, own_topics), LimitRpcs(limits, callers, own_topics)
