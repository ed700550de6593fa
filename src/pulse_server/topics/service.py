"""Settings of topics: changes by operators, declarations of workers, and what is in force.

And limits: their state (running jobs, waiting jobs, the next start), holds of topics, weights of lanes. A
sweep keeps them exact: it ends limits that were removed, proves the counts, and shows them. ADR-0064
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from pulse.topic_settings import ENTRIES, Entries, check_together
from pulse_server.base import bounds, tuning
from pulse_server.base.errors import InvalidArgument, LimitsPending, PermissionDenied, PulseError
from pulse_server.base.ids import Page, decode_name, encode_name, fitting
from pulse_server.base.loops import Loop, in_turns
from pulse_server.base.metrics import MOST_TOPICS, OTHER_TOPICS, Labels, Metrics
from pulse_server.base.sharing import Samples
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.service import Gate
from pulse_server.topics.rules import (
    LIMITS,
    NOT_SHORTENED,
    NOTHING,
    RUNS,
    LaneState,
    Limits,
    OpenTransaction,
    Owners,
    Replaced,
    Runs,
    Shortened,
    TopicSettings,
    limits_in_force,
    part,
    refused,
    settings_of,
    values_of,
)
from pulse_server.topics.rules import pending as clause_of
from pulse_server.topics.store import PostgresLimitRepo, PostgresTopicSettings
from pulse_server.wakeups.watchers import Wakeup

# A change is announced to the other servers; behind a pooler this is how long they take to read it.
SETTINGS_INTERVAL = timedelta(seconds=2)
# A worker that reconnects declares its limits again. Older declarations would be read for nothing.
FORGOTTEN_AFTER = timedelta(minutes=10)
# Another server may have changed limits from an older read. Then both servers look again.
MOST_ROUNDS = 5
# Retired limits are removed once no job stands in a lane, and no start and no hold counts. After
# this many rounds only the sweep removes them.
CLEANING_ROUNDS = 15
# The approximate size of settings in an answer, and of a declaration, without their texts.
_SETTINGS_BYTES, _DECLARATION_BYTES = 600, 200

log = logging.getLogger(__name__)


class TopicRules:
    """How jobs run, in memory: submits, deliveries and heartbeats must not read the table.

    Statements that end an attempt read the table. While the database is away the rules stay
    unchanged. ADR-0060
    """

    def __init__(self, repo: PostgresTopicSettings, server: Entries) -> None:
        self._repo = repo
        self.default_attempts: int = server["max_attempts"]
        self._server_timeout: timedelta | None = server.get("attempt_timeout")
        self._rules: Mapping[str, Runs] = {}
        self.time_limits: Mapping[str, timedelta] = self._time_limits()
        """Time limits by topic. The entry "", if any, is for topics without a limit. Replaced as a
        whole when a limit changes."""
        self._reads = self._newest = 0

    def max_attempts(self, topic: str, default: int | None = None) -> int:
        """For a job without its own number. Only operators override a default of its producer."""
        rules = self._rules.get(topic)
        if default is not None and not (rules is not None and rules.attempts_by_operator):
            return default
        return self.attempts_by_topic(topic, self.default_attempts)

    def attempts_by_topic(self, topic: str, otherwise: int) -> int:
        """The attempts that a worker or an operator set for the topic, else `otherwise`."""
        rules = self._rules.get(topic)
        return otherwise if rules is None or rules.max_attempts is None else rules.max_attempts

    def __contains__(self, topic: str) -> bool:
        """Whether this server knows of rules for the topic, by a worker or an operator."""
        return topic in self._rules

    async def refresh(self) -> None:
        """Read the rules. The first call comes before the server accepts work, and must not fail."""
        self._reads = read = self._reads + 1
        rules = await self._repo.read_rules()
        if read < self._newest:
            return  # a read that began later was answered sooner
        self._newest = read
        if rules == self._rules:
            return
        self._rules = rules
        if (time_limits := self._time_limits()) != self.time_limits:
            self.time_limits = time_limits
        log.info("topic_rules", extra={"topics": len(rules)})

    def _time_limits(self) -> Mapping[str, timedelta]:
        own = {topic: rules.attempt_timeout for topic, rules in self._rules.items()}
        found = {"": self._server_timeout, **own}
        return {topic: timeout for topic, timeout in found.items() if timeout is not None}


class SettingsOfTopics:
    """Reads, changes and declares settings, and puts limits in force.

    Every server puts all limits in force, with the same result. Limits that are in force already are left
    unchanged.
    """

    def __init__(
        self,
        repo: PostgresTopicSettings,
        limits: PostgresLimitRepo,
        publisher: Publisher,
        refresh_gate: Callable[[], Awaitable[None]],
        server: Entries,
        *,
        interval: timedelta = SETTINGS_INTERVAL,
    ) -> None:
        self._repo = repo
        self._limits = limits
        self._publisher = publisher
        self._refresh_gate = refresh_gate
        self.server = server
        """The settings of this server."""
        self.rules = TopicRules(repo, server)
        self._known: Mapping[str, Owners] = {}
        self._differing: dict[str, Sequence[Entries]] = {}
        self.pending: Mapping[str, str] = {}
        """Topics whose limits are accepted and not in force yet, with the clause of what they wait for."""
        self._cleaning_rounds = 0
        self._applying = asyncio.Lock()
        self.loop = Loop("topic settings", self.keep_in_force, interval)

    # ------------------------------------------------------------ requests

    async def set(self, topic: str, entries: Entries, reset: Collection[str], by: str) -> TopicSettings:
        """Change the settings of a topic, which need not have jobs. Returns its settings as they are then."""
        names = {*entries, *reset}
        if not names:
            raise InvalidArgument("entries", "and reset are empty, which changes nothing: set an entry.")
        changes_limits = not names.isdisjoint(LIMITS)
        if changes_limits:
            await self._check_limits(topic, entries, reset)
        await self._repo.set_topic(topic, entries, reset, by)
        if changes_limits:
            await self._put_in_force()
        if not names.isdisjoint(RUNS):
            await self._publish_rules()
        return (await self._settings([topic], await self._shortened_of(topic)))[0]

    async def _check_limits(self, topic: str, entries: Entries, reset: Collection[str]) -> None:
        """Raise InvalidArgument if an operator's limits conflict with those that are declared."""
        owners = await self._owners_of(topic)
        kept = {name: value for name, value in owners.operator.items() if name not in reset}
        operator = part({**kept, **entries}, LIMITS)
        if operator:
            refused(check_together, {**owners.declared_limits, **operator})

    async def declare(self, declared: Mapping[str, Entries], by: str) -> Sequence[Replaced]:
        """Store what a worker declares, and put its limits in force.

        Returns how the jobs ran by declarations of other workers that it replaced.
        """
        # Most workers declare nothing for topics without settings: skip the database.
        declared = {
            topic: entries
            for topic, entries in declared.items()
            if entries or topic in self.rules or topic in self._known
        }
        if not declared:
            return ()
        limited = [topic for topic in declared if part(declared[topic], LIMITS) or topic in self._known]
        for topic in limited:
            pool = declared[topic].get("pool", topic)
            if pool in self._known and pool != topic:
                raise InvalidArgument(
                    "pool",
                    f"of {topic!r} is {pool!r}, the name of another topic that has limits: choose "
                    "another name, or let an operator set it.",
                )
        changed = await self._repo.declare_topics(declared, by)
        if changed.replaced:
            self._log_replaced(changed.replaced, declared, by)
            await self._publish_rules()
        if limited:
            # Also if nothing is new: the server that stored them may have been killed before this.
            await self._put_in_force(is_news=bool(changed.topics))
            # The worker would start jobs before its limits hold.
            if waits := [topic for topic in limited if topic in self.pending]:
                raise LimitsPending(waits[0], self.pending[waits[0]])
        return [before for before in changed.replaced if before.entries and before.by != by]

    async def list(self, *, limit: int, token: str, topics: Collection[str]) -> Page[TopicSettings]:
        """One page of the topics that have settings of their own, by name. With `topics` only these."""
        most = limit or bounds.MAX_PAGE_SIZE
        found = await self._repo.list_topics(
            limit=most + 1, after=decode_name(token) if token else "", topics=topics or None
        )
        entries = await self._settings(
            [each.topic for each in found[:most]], {each.topic: each.shortened for each in found}
        )
        count = fitting(map(_weight, entries)) if entries else 0
        next_token = encode_name(found[count - 1].topic) if count < len(found) else ""
        return Page([*entries[:count]], next_token)

    def pending_of(self, topic: str) -> str:
        """What the accepted limits of the topic wait for, in a clause; empty if they are in force."""
        return self.pending.get(topic, "")

    async def _settings(
        self, topics: Sequence[str], shortened: Mapping[str, Shortened]
    ) -> tuple[TopicSettings, ...]:
        read = await self._repo.read_owners(topics) if topics else []
        owners = {topic: Owners(topic) for topic in topics} | {each.topic: each for each in read}
        # The numbers of a pool are those of all its topics.
        limits = limits_in_force({**self._known, **owners}.values())
        return tuple(
            settings_of(
                owners[topic],
                limits.get(topic, {}),
                self.server,
                shortened.get(topic, NOT_SHORTENED),
                self.pending_of(topic),
            )
            for topic in topics
        )

    async def _shortened_of(self, topic: str) -> Mapping[str, Shortened]:
        return {each.topic: each.shortened for each in await self._repo.list_topics(limit=1, topics=[topic])}

    async def _owners_of(self, topic: str) -> Owners:
        (owners, *_) = [*await self._repo.read_owners([topic]), Owners(topic)]
        return owners

    def _log_replaced(self, replaced: Sequence[Replaced], declared: Mapping[str, Entries], by: str) -> None:
        for before in replaced[: tuning.WORKER_TOPICS_SHOWN]:
            log.info(
                "runs_declared",
                extra={
                    "worker_id": by,
                    "topic": before.topic,
                    "before": _texts(before.entries),
                    "after": _texts(part(declared[before.topic], RUNS)),
                    "before_by": before.by,
                },
            )

    # ------------------------------------------------------------ in force

    def heard(self, wakeup: Wakeup) -> None:
        """Another server has something new."""
        if wakeup.settings_changed:
            self.loop.nudge()

    async def prime(self) -> None:
        """Read the rules, and put limits in force. A server that cannot read them must not start.

        A change that meets a lock is left to the loop.
        """
        await self.rules.refresh()
        owners = await self._read()
        with suppress(PulseError):
            await self._unmark(limits_in_force(owners))
            await self.apply()

    async def keep_in_force(self) -> None:
        """Read the rules, and put limits in force: the settings may have changed at another server."""
        await self.rules.refresh()
        await self.apply()

    async def apply(self) -> None:
        """Put the wanted limits in force. Raises a PulseError at the end if a topic failed.

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

    async def _apply_once(self, lately: Collection[str]) -> Sequence[str]:
        """Returns the topics that had to change.

        `lately` has those of the round before: their entries may have been deleted meanwhile.
        """
        owners = await self._read()
        if not owners and not lately:
            self._set_pending({})
            return []
        wanted = {topic: values_of(limits) for topic, limits in limits_in_force(owners).items()}
        named = sorted({owner.topic for owner in owners}.union(lately))
        known = await self._limits.list_limits(limit=len(named), topics=named)
        held = {limits.topic: limits.in_force for limits in known}
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
                owner = self._known.get(topic, Owners(topic))
                _log_change(owner, held.get(topic, NOTHING), wanted.get(topic, NOTHING))
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
        silent = [each.topic for each in owners if each.has_no_limits and each.topic not in held]
        if silent:
            await self._repo.forget_owners(silent)
        return changed

    async def _read(self) -> Sequence[Owners]:
        owners = await self._repo.read_owners()
        if any(owner.has_moved for owner in owners):
            await self._repo.mark_missing()
            counting = [owner.topic for owner in owners if owner.is_served or _any_counts(owner)]
            await self._repo.forget_declarations(counting, FORGOTTEN_AFTER)
            owners = await self._repo.read_owners()
        self._known = {owner.topic: owner for owner in owners}
        self._log_differences(owners)
        return owners

    async def _change(self, topic: str, limits: Entries | None) -> Sequence[OpenTransaction] | None:
        self._cleaning_rounds = CLEANING_ROUNDS
        if limits is None:
            return await self._limits.retire(topic)
        return await self._limits.limit_topic(topic, limits)

    async def _unmark(self, wanted: Collection[str]) -> None:
        """Let plain claims take topics that a killed server was about to limit, without any owner by now."""
        if left_out := await self._limits.unmark(list(wanted)):
            self._publisher.limits_changed(left_out)

    def _set_pending(self, pending: Mapping[str, str]) -> None:
        for topic, clause in pending.items():
            if topic not in self.pending:
                log.warning("limits_pending", extra={"topic": topic, "pending": clause})
        self.pending = pending

    def _log_differences(self, owners: Sequence[Owners]) -> None:
        """Log that workers declare different limits, once."""
        differing = {
            owner.topic: [each.entries for each in found] for owner in owners if (found := owner.differing)
        }
        for topic, declared in differing.items():
            before = self._differing.get(topic, ())
            if any(entries not in before for entries in declared) or len(before) != len(declared):
                log.warning(
                    "limits_differ",
                    extra={
                        "topic": topic,
                        "workers": [each.worker_id for each in self._known[topic].differing],
                        "in_force": _texts(values_of(self._known[topic].limits)),
                    },
                )
        self._differing = dict(differing)

    async def _put_in_force(self, *, is_news: bool = True) -> None:
        """Put the limits that are stored in force, here and at the other servers."""
        try:
            await self.apply()
        finally:
            if is_news:
                self._publisher.settings_changed()

    async def _publish_rules(self) -> None:
        await self.rules.refresh()
        self._publisher.settings_changed()


async def remove_retired(
    limits: PostgresLimitRepo, refresh_gate: Callable[[], Awaitable[None]], publisher: Publisher
) -> None:
    """Remove retired limits without a counting job, start or hold."""
    if removed := await limits.remove_retired():
        log.info("limits_removed", extra={"topics": removed[: tuning.WORKER_TOPICS_SHOWN]})
        await refresh_gate()
        publisher.limits_changed(removed)


def _log_change(owner: Owners, before: Entries, after: Entries) -> None:
    """Log the limits in force, and the last author: an operator, or the user of a worker."""
    said = [(owner.set_at, owner.set_by)] if owner.set_at is not None else []
    said += [(each.declared_at, each.worker_id) for each in owner.declarations]
    log.info(
        "limits_changed",
        extra={
            "topic": owner.topic,
            "before": _texts(before),
            "after": _texts(after),
            "by": max(said)[1] if said else "",
        },
    )


def _texts(entries: Entries) -> dict[str, str]:
    """Return the entries as the log shows them, and the CLI takes them."""
    return {name: ENTRIES[name].text(value) for name, value in entries.items()}


def _any_counts(owner: Owners) -> bool:
    return any(declaration.counts for declaration in owner.declarations)


def _weight(settings: TopicSettings) -> int:
    owners = settings.owners
    pools = [str(entries.get("pool", "")) for entries in (owners.operator, owners.declared)]
    texts = [settings.topic, owners.set_by, owners.runs_by, settings.pending, *pools]
    differing = sum(len(each.worker_id.encode()) + _DECLARATION_BYTES for each in owners.differing)
    return sum(len(text.encode()) for text in texts) + differing + _SETTINGS_BYTES


# The approximate size of a topic in an answer, without its texts.
_LIMITS_BYTES = 600
DEFAULT_LANES = 50
# Cached lists, each of a topic and an order. One has up to 1,000 lanes of some 500 bytes.
LANE_LISTS_REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits in force of a topic, and its state."""

    limits: Limits
    pending: str = ""
    """The clause of what accepted limits wait for; empty: they are in force."""


class LimitsOfTopics:
    def __init__(self, limits: PostgresLimitRepo, settings: SettingsOfTopics, publisher: Publisher) -> None:
        self._limits = limits
        self._settings = settings
        self._publisher = publisher
        self._lanes = Samples(self._list_lanes, LANE_LISTS_REMEMBERED)

    async def list(self, *, limit: int, token: str, topics: Collection[str]) -> Page[TopicLimits]:
        """One page of the limited topics, by name. With `topics` only these.

        Topics whose first limit is pending are among them, without limits in force.
        """
        most = limit or bounds.MAX_PAGE_SIZE
        after = decode_name(token) if token else ""
        found = await self._limits.list_limits(limit=most + 1, after=after, topics=topics or None)
        pending = self._settings.pending
        awaited = {topic for topic in pending if topic > after and (not topics or topic in topics)}
        awaited -= {each.topic for each in found}
        if awaited:
            found = sorted([*found, *(Limits(topic, {}, 0) for topic in awaited)], key=_topic)
        entries = [TopicLimits(each, pending.get(each.topic, "")) for each in found[:most]]
        count = fitting(map(_weight_of_lane, entries)) if entries else 0
        next_token = encode_name(found[count - 1].topic) if count < len(found) else ""
        return Page(entries[:count], next_token)

    async def lanes(self, topic: str, *, limit: int, by_share: bool) -> Sequence[LaneState]:
        """The lanes that have waited the longest, or the lanes with the most running jobs.

        Cached: listing 100,000 lanes takes a third of a second, and pages refresh the list.
        """
        return await self._lanes.get((topic, limit or DEFAULT_LANES, by_share))

    async def _list_lanes(self, asked: tuple[str, int, bool]) -> Sequence[LaneState]:
        topic, limit, by_share = asked
        return await self._limits.list_lanes(topic, limit=limit, by_share=by_share)

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> None:
        """Start no job of the topic for `span`; zero ends the hold.

        Raises InvalidArgument if the topic has no limits, and PermissionDenied if a worker would
        end the hold of an operator.
        """
        held = await self._limits.hold(topic, span, by_operator=by_operator)
        if held is None:
            raise InvalidArgument(
                "topic",
                f"{topic!r} has no limits, so it cannot be held: set a limit or a rate first, or pause it.",
            )
        if not span:
            self._publisher.limits_changed([topic])
            if held.until is not None:
                raise PermissionDenied(
                    f"An operator holds {topic!r} until {held.until:%Y-%m-%d %H:%M:%S} UTC. A worker cannot "
                    "end that: let an operator do it."
                )

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> None:
        """Set a lane's weight and limit. Raises InvalidArgument if the limits of the topic forbid it."""
        if limit is not None:
            (known, *_) = [*await self._limits.list_limits(limit=1, topics=[topic]), None]
            if known is not None and known.is_laned:
                if "per_lane" not in known.in_force:
                    raise InvalidArgument(
                        "limit", f"needs a limit of each lane of {topic!r}: set per_lane first."
                    )
                if known.in_force.get("ordered") and limit > 1:
                    raise InvalidArgument(
                        "limit", f"is {limit}, but jobs of {topic!r} run in order, one of a lane at a time."
                    )
        if not await self._limits.set_lane(topic, lane, weight, limit):
            raise InvalidArgument(
                "topic", f"{topic!r} has no lanes: set per_lane, lane_rate or turns of the topic first."
            )
        self._lanes = Samples(self._list_lanes, LANE_LISTS_REMEMBERED)  # the caller may look at once
        self._publisher.limits_changed([topic])


def _topic(limits: Limits) -> str:
    return limits.topic


def _weight_of_lane(entry: TopicLimits) -> int:
    texts = entry.pending + entry.limits.topic + entry.limits.in_force.get("pool", "")
    return len(texts.encode()) + _LIMITS_BYTES


# A sweep repairs counters that were changed by hand: jobs may wait for it. It reads each running
# limited job.
SWEEP_INTERVAL = timedelta(seconds=30)
# Every this many rounds, delete unused lanes, by statements that look at each lane.
FORGETTING_ROUNDS = 20
FORGOTTEN_LANES = 10_000
# There may be 100,000 limited topics; these take some 3 ms.
TOPICS_IN_A_TURN = 10_000


class LimitSweep:
    """Sends nothing while no topic is limited."""

    def __init__(self, repo: PostgresLimitRepo, gate: Gate, publisher: Publisher, metrics: Metrics) -> None:
        self._repo = repo
        self._gate = gate
        self._publisher = publisher
        self._metrics = metrics
        self._rounds = 0
        self._limits: Sequence[Limits] = ()
        metrics.limited_running.read = lambda: self._gauge(lambda topic: topic.running)
        metrics.limit_in_force.read = lambda: self._gauge(lambda topic: topic.in_force.get("running"))
        metrics.rate_spent.read = lambda: self._gauge(
            lambda topic: (topic.next_start_at or topic.closed_until) is not None
        )
        metrics.topic_limited.read = lambda: self._gauge(lambda topic: bool(topic.why_full))
        self.loop = Loop("limit sweep", self.tick, SWEEP_INTERVAL)

    async def tick(self) -> None:
        if not self._gate.state.limited:
            self._limits = ()
            return
        repaired = await self._repo.sweep()
        self._metrics.pools_repaired.add(by=repaired.pools)
        self._metrics.lanes_repaired.add(by=repaired.lanes)
        if any(repaired):
            log.error("limits_repaired", extra=repaired._asdict())
            self._publisher.limits_changed(self._gate.state.limited)
        self._limits = await self._repo.list_limits(limit=MOST_TOPICS, topics=await self._named())
        self._rounds += 1
        if self._rounds % FORGETTING_ROUNDS == 0:
            while await self._repo.forget_lanes(FORGOTTEN_LANES) == FORGOTTEN_LANES:
                pass
        await remove_retired(self._repo, self._gate.refresh, self._publisher)

    async def _named(self) -> list[str]:
        """The limited topics that have a name among the metrics: a thousand at the most."""
        return [
            topic
            async for some in in_turns(list(self._gate.state.limited), TOPICS_IN_A_TURN)
            for topic in some
            if self._metrics.topic(topic) != OTHER_TOPICS
        ]

    def _gauge(self, read: Callable[[Limits], float | None]) -> dict[Labels, float]:
        """A number for each topic that has one, and a name among the metrics."""
        numbers = {(self._metrics.topic(limits.topic),): read(limits) for limits in self._limits}
        numbers.pop((OTHER_TOPICS,), None)
        return {labels: float(number) for labels, number in numbers.items() if number is not None}
