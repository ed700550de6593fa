"""Puts limits in force: an operator's, or the strictest of the connected workers. ADR-0065"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from pulse_server import tuning
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.errors import InvalidArgument, LimitsPending, PulseError
from pulse_server.domain.limit_owners import LimitOwners, in_force
from pulse_server.domain.limits import NO_LIMIT_POLICY, LimitPolicy, OpenTransaction, check_policy
from pulse_server.domain.limits import pending as clause_of
from pulse_server.loops import Loop
from pulse_server.postgres.limit_owners import PostgresLimitOwnerRepo
from pulse_server.postgres.limits import PostgresLimitRepo
from pulse_server.wakeups import Wakeup

# A worker that reconnects declares its limits again. Older declarations would be read for nothing.
FORGOTTEN_AFTER = timedelta(minutes=10)
# Another server may have changed a policy from an older read. Then both servers look again.
MOST_ROUNDS = 5
# A retired policy is removed once no job stands in a lane, and no start and no hold counts. After
# this many rounds only the sweep removes retired policies.
CLEANING_ROUNDS = 15

log = logging.getLogger(__name__)


class LimitPolicies:
    """Puts policies in force. Every server does so for all topics, with the same result.

    Policies that are in force already are left unchanged.
    """

    def __init__(
        self,
        owners: PostgresLimitOwnerRepo,
        limits: PostgresLimitRepo,
        publisher: Publisher,
        refresh_gate: Callable[[], Awaitable[None]],
        *,
        interval: timedelta,
    ) -> None:
        self._repo = owners
        self._limits = limits
        self._publisher = publisher
        self._refresh_gate = refresh_gate
        self._known: Mapping[str, LimitOwners] = {}
        self._differing: dict[str, Sequence[LimitPolicy]] = {}
        self.pending: Mapping[str, str] = {}
        """Topics whose limits are accepted and not in force yet, with the clause of what they wait for."""
        self._cleaning_rounds = 0
        self._applying = asyncio.Lock()
        self.loop = Loop("limit policies", self.apply, interval)

    async def declare(self, declared: Mapping[str, LimitPolicy], by: str) -> None:
        """Store the limits that a worker declares, and put them in force."""
        # Most workers declare nothing, for topics that have no limits: that asks no database.
        blank = LimitPolicy()
        news = {
            topic: policy for topic, policy in declared.items() if policy != blank or topic in self._known
        }
        for topic, policy in news.items():
            if policy.pool in self._known and policy.pool != topic:
                raise InvalidArgument(
                    "limits.pool",
                    f"of {topic!r} is {policy.pool!r}, the name of another topic that has limits: choose "
                    "another name, or let an operator set it.",
                )
        if news:
            await self._repo.declare_limits(news, by)
            await self.put_in_force()
            # The worker would start jobs before its limits hold.
            if waits := [topic for topic in news if topic in self.pending]:
                raise LimitsPending(waits[0], self.pending[waits[0]])

    async def check(self, topic: str, policy: LimitPolicy, returned: Collection[str]) -> None:
        """Raise InvalidArgument if an operator's limits conflict with those that are declared."""
        (owner, *_) = [*await self._repo.read_owners([topic]), LimitOwners(topic)]
        override = policy.over(owner.override).without(returned)
        if override != LimitPolicy():
            check_policy(override.over(owner.declared), "limits")

    async def owners(self, topics: Collection[str]) -> Mapping[str, LimitOwners]:
        """The owners of the topics' limits. Topics without limits have no entry."""
        if not topics:
            return {}
        return {owner.topic: owner for owner in await self._repo.read_owners(topics)}

    def pending_of(self, topic: str) -> str:
        """What the accepted limits of the topic wait for, in a clause; empty if they are in force."""
        return self.pending.get(topic, "")

    async def prime(self) -> None:
        """Read the limits, and put them in force. A change that meets a lock is left to the loop."""
        owners = await self._read()
        with suppress(PulseError):
            await self._unmark(in_force(owners))
            await self.apply()

    async def apply(self) -> None:
        """Put the wanted policies in force. Raises a PulseError at the end if a topic failed.

        A topic whose running jobs another transaction has locked stays as it is, and is `pending`.
        """
        async with self._applying:
            changed: Collection[str] = ()
            for _ in range(MOST_ROUNDS):
                changed = await self._apply_once(changed)
                if not changed:
                    break
            if self._known or self._cleaning_rounds:
                self._cleaning_rounds = max(self._cleaning_rounds - 1, 0)
                await remove_retired(self._limits, self._refresh_gate, self._publisher)

    async def _apply_once(self, lately: Collection[str]) -> list[str]:
        """Returns the topics that had to change.

        `lately` has those of the round before: their entries may have been deleted meanwhile.
        """
        owners = await self._read()
        if not owners and not lately:
            self._set_pending({})
            return []
        wanted = in_force(owners)
        named = sorted({owner.topic for owner in owners}.union(lately))
        known = await self._limits.list_limits(limit=len(named), topics=named)
        held = {limits.topic: limits.policy for limits in known}
        topics = [topic for topic in named if wanted.get(topic) != held.get(topic)]
        failure: PulseError | None = None
        changed: list[str] = []
        pending: dict[str, str] = {}
        for topic in topics:
            try:
                holders = await self._change(topic, wanted.get(topic))
            except PulseError as error:  # one failing topic must not block other topics
                failure = failure or error
                if topic in self.pending:
                    pending[topic] = self.pending[topic]
                continue
            if holders is None:
                changed.append(topic)
                owner = self._known.get(topic, LimitOwners(topic))
                _log_change(owner, held.get(topic), wanted.get(topic))
            else:
                pending[topic] = clause_of(holders)
        self._set_pending(pending)
        if changed:
            await self._refresh_gate()
            self._publisher.limits_changed(changed)
        # Plain claims may have left these out for a moment.
        if tried := [topic for topic in pending if topic not in held]:
            self._publisher.limits_changed(tried)
        await self._unmark(wanted)
        if failure is not None:
            raise failure
        silent = [each.topic for each in owners if each.says_nothing and each.topic not in held]
        if silent:
            await self._repo.forget_owners(silent)
        return changed

    async def _read(self) -> list[LimitOwners]:
        owners = await self._repo.read_owners()
        if any(owner.has_moved for owner in owners):
            await self._repo.mark_missing()
            counting = [owner.topic for owner in owners if owner.is_served or _any_counts(owner)]
            await self._repo.forget_declarations(counting, FORGOTTEN_AFTER)
            owners = await self._repo.read_owners()
        self._known = {owner.topic: owner for owner in owners}
        self._log_differences(owners)
        return owners

    async def _change(self, topic: str, policy: LimitPolicy | None) -> Sequence[OpenTransaction] | None:
        self._cleaning_rounds = CLEANING_ROUNDS
        if policy is None:
            return await self._limits.retire(topic)
        return await self._limits.limit_topic(topic, policy)

    async def _unmark(self, wanted: Collection[str]) -> None:
        """Let plain claims take topics that a killed server was about to limit, without any owner by now."""
        if left_out := await self._limits.unmark(list(wanted)):
            self._publisher.limits_changed(left_out)

    def _set_pending(self, pending: Mapping[str, str]) -> None:
        for topic, clause in pending.items():
            if topic not in self.pending:
                log.warning("limits_pending", extra={"topic": topic, "pending": clause})
        self.pending = pending

    def _log_differences(self, owners: Sequence[LimitOwners]) -> None:
        """Log that workers declare different limits, once."""
        differing = {
            owner.topic: tuple(each.policy for each in owner.differing) for owner in owners if owner.differing
        }
        for topic, policies in differing.items():
            if set(policies) != set(self._differing.get(topic, ())):
                log.warning(
                    "limits_differ",
                    extra={
                        "topic": topic,
                        "workers": [each.worker_id for each in self._known[topic].differing],
                        "in_force": self._known[topic].effective.entries,
                    },
                )
        self._differing = dict(differing)

    async def put_in_force(self) -> None:
        """Put what is stored in force, here and at the other servers."""
        try:
            await self.apply()
        finally:
            self._publisher.policies_changed()

    def heard(self, wakeup: Wakeup) -> None:
        """Another server has something new."""
        if wakeup.policies_changed:
            self.loop.nudge()


async def remove_retired(
    limits: PostgresLimitRepo, refresh_gate: Callable[[], Awaitable[None]], publisher: Publisher
) -> None:
    """Remove retired policies without a counting job, start or hold."""
    if removed := await limits.remove_retired():
        log.info("limits_removed", extra={"topics": removed[: tuning.WORKER_TOPICS_SHOWN]})
        await refresh_gate()
        publisher.limits_changed(removed)


def _log_change(owner: LimitOwners, before: LimitPolicy | None, after: LimitPolicy | None) -> None:
    """Log the policy in force, and the last author: an operator, or the user of a worker."""
    said = [(owner.set_at, owner.set_by)] if owner.set_at is not None else []
    said += [(each.declared_at, each.worker_id) for each in owner.declarations]
    log.info(
        "limits_changed",
        extra={
            "topic": owner.topic,
            "before": (before or NO_LIMIT_POLICY).entries,
            "after": (after or NO_LIMIT_POLICY).entries,
            "by": max(said)[1] if said else "",
        },
    )


def _any_counts(owner: LimitOwners) -> bool:
    return any(declaration.counts for declaration in owner.declarations)
