"""The run policies of topics as this server last read them, over its own settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from pulse_server.domain.run_policies import RunPolicy, StoredRun
from pulse_server.loops import Loop
from pulse_server.postgres.policies import PostgresPolicyRepo
from pulse_server.wakeups import Wakeup

log = logging.getLogger(__name__)


class RunPolicies:
    """Run policies in memory: submits, deliveries and heartbeats must not read the table.

    Statements that end an attempt read the table. While the database is away the policies stay
    unchanged. ADR-0060
    """

    def __init__(self, repo: PostgresPolicyRepo, server: RunPolicy, *, interval: timedelta) -> None:
        assert server.max_attempts is not None, "the settings have a default"
        self._repo = repo
        self.server = server
        """The run policy of this server's settings."""
        self.default_attempts = server.max_attempts
        self._stored: Mapping[str, StoredRun] = {}
        self._policies: Mapping[str, RunPolicy] = {}
        self._max_attempts: dict[str, int] = {}
        self._by_operators: dict[str, int] = {}
        self.time_limits: Mapping[str, timedelta] = self._time_limits()
        """Time limits by topic. The entry "", if any, is for topics without a limit. Replaced as a
        whole when a limit changes."""
        self._reads = self._newest = 0
        self.loop = Loop("run policies", self.refresh, interval)

    def max_attempts(self, topic: str, default: int | None = None) -> int:
        """For a job without its own number. Only operators override a default of its producer."""
        if default is not None:
            return self._by_operators.get(topic, default)
        return self._max_attempts.get(topic, self.default_attempts)

    def attempts_by_policy(self, topic: str, otherwise: int) -> int:
        """The attempts that a worker or an operator set for the topic, else `otherwise`."""
        return self._max_attempts.get(topic, otherwise)

    def has_policy(self, topic: str) -> bool:
        """Whether this server knows of a policy for the topic, by a worker or an operator."""
        return topic in self._policies

    async def refresh(self) -> None:
        """Read the policies. The first call comes before the server accepts work, and must not fail."""
        self._reads = read = self._reads + 1
        stored = await self._repo.read_run_policies()
        if read < self._newest:
            return  # a read that began later was answered sooner
        self._newest = read
        if stored == self._stored:
            return
        self._stored = stored
        self._policies = policies = {topic: run.effective for topic, run in stored.items()}
        self._max_attempts = _attempts(policies)
        self._by_operators = _attempts({topic: run.override for topic, run in stored.items()})
        if (time_limits := self._time_limits()) != self.time_limits:
            self.time_limits = time_limits
        log.info("run_policies", extra={"topics": len(policies)})

    def _time_limits(self) -> Mapping[str, timedelta]:
        own = {topic: policy.timeout for topic, policy in self._policies.items()}
        found = {"": self.server.timeout, **own}
        return {topic: timeout for topic, timeout in found.items() if timeout is not None}

    def heard(self, wakeup: Wakeup) -> None:
        """Another server has something new."""
        if wakeup.policies_changed:
            self.loop.nudge()


def _attempts(policies: Mapping[str, RunPolicy]) -> dict[str, int]:
    return {
        topic: policy.max_attempts for topic, policy in policies.items() if policy.max_attempts is not None
    }
