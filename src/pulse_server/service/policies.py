"""Reads, changes and declares the policies of topics."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from pulse_server import tuning
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.limit_owners import LimitOwners
from pulse_server.domain.limits import LimitPolicy
from pulse_server.domain.policies import Kept, PolicyChange, TopicPolicy
from pulse_server.domain.run_policies import Declaration, RunPolicy
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.policies import PostgresPolicyRepo
from pulse_server.service.limit_policies import LimitPolicies
from pulse_server.service.paging import Page, decode_name, encode_name, fitting
from pulse_server.service.run_policies import RunPolicies

# The approximate size of a policy in an answer, without its texts.
_POLICY_BYTES = 400

log = logging.getLogger(__name__)


class Policies:
    def __init__(
        self,
        repo: PostgresPolicyRepo,
        server: Mapping[JobStatus, Kept],
        runs: RunPolicies,
        limits: LimitPolicies,
        publisher: Publisher,
    ) -> None:
        self._repo = repo
        self.server = server
        """How long the settings of this server keep jobs."""
        self._runs = runs
        self._limits = limits
        self._publisher = publisher

    @property
    def server_run(self) -> RunPolicy:
        """How jobs run by the settings of this server."""
        return self._runs.server

    async def set(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        """Change the policy of a topic, which need not have jobs. Returns the new policy."""
        if not (change.changes_retention or change.changes_runs or change.changes_limits):
            raise InvalidArgument(
                "retention", "and run and limits are empty, which changes nothing: set an entry."
            )
        if change.changes_limits:
            await self._limits.check(topic, change.limits, change.limits_returned)
        policy = await self._repo.set_policy(topic, change, by)
        if change.changes_limits:
            await self._limits.put_in_force()
        if change.changes_runs:
            await self._publish()
        return policy

    async def declare(
        self, declared: Mapping[str, RunPolicy], by: str, limits: Mapping[str, LimitPolicy] | None = None
    ) -> Sequence[Declaration]:
        """Store the policies that a worker declares, and put its limits in force.

        Returns the run policies of other workers that it replaced.
        """
        await self._limits.declare(limits or {}, by)
        # Most workers declare nothing for topics without a policy: skip the database.
        declared = {
            topic: run for topic, run in declared.items() if not run.is_empty or self._runs.has_policy(topic)
        }
        if not declared:
            return []
        changed = await self._repo.declare_policies(declared, by)
        if changed:
            for before in changed[: tuning.WORKER_TOPICS_SHOWN]:
                log.info(
                    "policy_declared",
                    extra={
                        "worker_id": by,
                        "topic": before.topic,
                        "before": before.run.entries,
                        "after": declared[before.topic].entries,
                        "before_by": before.by,
                    },
                )
            await self._publish()
        return [before for before in changed if not before.run.is_empty and before.by != by]

    async def list(self, *, limit: int, token: str, topics: Collection[str]) -> Page[TopicPolicy]:
        """One page, by topic. With `topics` only these."""
        most = limit or bounds.MAX_PAGE_SIZE
        found = await self._repo.list_policies(
            limit=most + 1, after=decode_name(token) if token else "", topics=topics or None
        )
        count = fitting(map(_weight, found[:most])) if found else 0
        next_token = encode_name(found[count - 1].topic) if count < len(found) else ""
        return Page(found[:count], next_token)

    async def limit_owners(self, topics: Collection[str]) -> Mapping[str, LimitOwners]:
        """The owners of the topics' limits."""
        return await self._limits.owners(topics)

    def limits_pending(self, topic: str) -> str:
        """What the accepted limits of the topic wait for, in a clause; empty if they are in force."""
        return self._limits.pending_of(topic)

    def effective(self, policy: TopicPolicy) -> RunPolicy:
        """The run policy in force for the jobs of the topic."""
        return policy.run.over(policy.declared).over(self.server_run)

    async def _publish(self) -> None:
        await self._runs.refresh()
        self._publisher.policies_changed()


def _weight(policy: TopicPolicy) -> int:
    texts = policy.topic + policy.set_by + policy.declared_by
    return len(texts.encode()) + _POLICY_BYTES
