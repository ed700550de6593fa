"""The policies of topics in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pulse_server.domain.policies import Grace, PolicyChange, TopicPolicy, keep_anew
from pulse_server.domain.run_policies import Declaration, RunPolicy, StoredRun
from pulse_server.memory.clock import ControlledClock


class InMemoryPolicyRepo:
    def __init__(self, clock: ControlledClock | None = None) -> None:
        self._clock = clock or ControlledClock()
        self.policies: dict[str, TopicPolicy] = {}
        self._read: Mapping[str, StoredRun] = {}

    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        before = self.policies.pop(topic, TopicPolicy(topic))
        run = change.run.over(before.run).without(change.run_returned)
        policy = keep_anew(replace(before, run=run), change, Grace(), self._clock.now())
        is_set = bool(policy.kept or policy.before) or not policy.run.is_empty
        return self._put(
            replace(policy, set_by=by if is_set else "", set_at=self._clock.now() if is_set else None)
        )

    async def declare_policies(self, declared: Mapping[str, RunPolicy], by: str) -> Sequence[Declaration]:
        changed = []
        for topic, run in sorted(declared.items()):
            before = self.policies.pop(topic, TopicPolicy(topic))
            if before.declared == run:
                self._put(before)
                continue
            changed.append(Declaration(topic, before.declared, before.declared_by, before.declared_at))
            is_declared = not run.is_empty
            self._put(
                replace(
                    before,
                    declared=run,
                    declared_by=by if is_declared else "",
                    declared_at=self._clock.now() if is_declared else None,
                )
            )
        return changed

    async def list_policies(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[TopicPolicy]:
        names = sorted(name for name in self.policies if name > after and (topics is None or name in topics))
        return [self.policies[name] for name in names[:limit]]

    async def read_run_policies(self) -> Mapping[str, StoredRun]:
        found = {topic: StoredRun(policy.run, policy.declared) for topic, policy in self.policies.items()}
        found = {topic: run for topic, run in found.items() if not run.effective.is_empty}
        if found != self._read:
            self._read = found
        return self._read

    def _put(self, policy: TopicPolicy) -> TopicPolicy:
        if policy.kept or policy.before or not (policy.run.is_empty and policy.declared.is_empty):
            self.policies[policy.topic] = policy
            return policy
        return TopicPolicy(policy.topic)
