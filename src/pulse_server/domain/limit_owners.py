"""Who owns a limit: an operator, or the code of the connected workers. ADR-0065

Each entry is decided separately. An operator's entry wins. Otherwise the strictest entry of the
connected workers holds. While no worker is connected, the last entries stay in force.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pulse_server.domain.limits import NO_LIMIT_POLICY, LimitPolicy, strictest

# A worker that moves to another server is disconnected for some seconds. Its limits still hold.
GRACE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class LimitDeclaration:
    """Limits that the code of one or several workers declares for a topic."""

    policy: LimitPolicy
    workers: int
    worker_id: str
    """The last worker that declared it."""
    declared_at: datetime
    missing_for: timedelta | None = None
    """How long ago the last worker disconnected. None: a worker is connected."""

    @property
    def counts(self) -> bool:
        return self.missing_for is None or self.missing_for < GRACE


@dataclass(frozen=True, slots=True)
class LimitOwners:
    """The limits of a topic that operators have set and workers declare."""

    topic: str
    override: LimitPolicy = NO_LIMIT_POLICY
    """Entries that operators have set."""
    set_by: str = ""
    set_at: datetime | None = None
    declarations: Sequence[LimitDeclaration] = ()
    """The oldest first."""
    is_served: bool = False
    """A worker without a declaration serves the topic, and no other does."""
    has_moved: bool = False
    """A worker has connected or gone since this was last recorded."""

    @property
    def standing(self) -> Sequence[LimitDeclaration]:
        """The declarations that count: of connected workers, else of the last connected workers."""
        counting = [declaration for declaration in self.declarations if declaration.counts]
        if counting or self.is_served:
            return counting
        away = [each.missing_for for each in self.declarations if each.missing_for is not None]
        return [
            declaration
            for declaration in self.declarations
            if declaration.missing_for is not None and declaration.missing_for < min(away) + GRACE
        ]

    @property
    def declared(self) -> LimitPolicy:
        """The strictest entries of the standing declarations."""
        return strictest(declaration.policy for declaration in self.standing)

    @property
    def effective(self) -> LimitPolicy:
        """The policy in force, before pools: other topics of the pool may have smaller numbers."""
        return _with_what_is_implied(self.topic, self.override.over(self.declared))

    @property
    def differing(self) -> Sequence[LimitDeclaration]:
        """The declarations that count, if they are not all the same."""
        standing = self.standing
        return standing if len({declaration.policy for declaration in standing}) > 1 else ()

    @property
    def says_nothing(self) -> bool:
        return _is_blank(self.override) and all(_is_blank(each.policy) for each in self.declarations)


def in_force(owners: Collection[LimitOwners]) -> Mapping[str, LimitPolicy]:
    """The policy in force for each limited topic.

    Topics of a pool share its smallest numbers. Numbers set by operators win over declared numbers.
    A declared pool does not count if another topic has its name: they would share its slots.
    """
    topics = {owner.topic for owner in owners}
    wanted: dict[str, LimitPolicy] = {}
    shared: dict[str, list[LimitPolicy]] = {}
    set_by_operators: dict[str, list[LimitPolicy]] = {}
    for owner in owners:
        policy = owner.effective
        if owner.override.pool is None and policy.pool in topics:
            policy = replace(policy, pool=None)
        if not policy.is_empty:
            wanted[owner.topic] = policy
            # A topic without a pool belongs to a pool with the topic's name.
            pool = policy.pool or owner.topic
            shared.setdefault(pool, []).append(LimitPolicy(policy.limit, policy.rate))
            override = LimitPolicy(owner.override.limit, owner.override.rate)
            set_by_operators.setdefault(pool, []).append(override)
    numbers = {
        name: strictest(set_by_operators[name]).over(strictest(policies)) for name, policies in shared.items()
    }
    return {
        topic: replace(policy, limit=pool.limit, rate=pool.rate)
        for topic, policy in wanted.items()
        for pool in (numbers[policy.pool or topic],)
    }


def _with_what_is_implied(topic: str, policy: LimitPolicy) -> LimitPolicy:
    return replace(
        policy,
        pool=None if policy.pool == topic else policy.pool,
        per_lane=1 if policy.ordered else policy.per_lane,
        turns=policy.is_laned or None,
        ordered=policy.ordered or None,
    )


def _is_blank(policy: LimitPolicy) -> bool:
    return policy == NO_LIMIT_POLICY
