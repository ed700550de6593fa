"""Reads and changes the policies of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.policies import Kept, PolicyChange, TopicPolicy
from pulse_server.domain.status import JobStatus
from pulse_server.repos.policies import PolicyRepo
from pulse_server.service.paging import Page, decode_name, encode_name, fitting

# About what a policy takes in an answer, besides its texts.
_POLICY_BYTES = 100


class Policies:
    def __init__(self, repo: PolicyRepo, server: Mapping[JobStatus, Kept]) -> None:
        self._repo = repo
        self.server = server
        """What the settings of this server say."""

    async def set(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        """Change the policy of a topic, which need not have jobs. Returns it as it is then."""
        if not change.kept and not change.returned:
            raise InvalidArgument("retention", "changes nothing: set completed, canceled or dead_lettered.")
        return await self._repo.set_policy(topic, change, by)

    async def list(self, *, limit: int, token: str, topics: Collection[str]) -> Page[TopicPolicy]:
        """One page, by topic. With `topics` only these."""
        most = limit or limits.MAX_PAGE_SIZE
        found = await self._repo.list_policies(
            limit=most + 1, after=decode_name(token) if token else "", topics=topics or None
        )
        count = fitting(map(_weight, found[:most])) if found else 0
        next_token = encode_name(found[count - 1].topic) if count < len(found) else ""
        return Page(found[:count], next_token)


def _weight(policy: TopicPolicy) -> int:
    return len(policy.topic) + len(policy.set_by.encode()) + _POLICY_BYTES
