"""The settings of topics: who owns an entry, which value is in force, and how a shorter duration begins.

Each entry is decided separately. An operator's wins over what the code of workers declares, which wins over
the settings of the servers. Of limits the connected workers decide together, by the strictest; while none is
connected, the last entries stay in force. Of how jobs run the newest declaration counts, connected or not.
docs/figures.md#retention, ADR-0060, ADR-0065

Limits say how many jobs of a topic run at once or start in a period, and whose turn it is. ADR-0064
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from pulse.topic_settings import ENTRIES, Declares, Entries, Keep, group_of
from pulse_server.base.errors import InvalidArgument
from pulse_server.jobs.rules import JobStatus

# A worker that moves to another server is disconnected for some seconds. Its limits still hold.
GRACE = timedelta(seconds=30)
MAX_DECLARED = 1000  # topics of one worker

LIMITS = tuple(name for name, entry in ENTRIES.items() if entry.declares is Declares.CONNECTED)
"""Entries that connected workers decide together."""
RUNS = tuple(name for name, entry in ENTRIES.items() if entry.declares is Declares.LAST)
"""Entries of which the newest declaration counts."""
KEPT = {
    "keep_completed": JobStatus.COMPLETED,
    "keep_canceled": JobStatus.CANCELED,
    "keep_dead_lettered": JobStatus.DEAD_LETTERED,
}
"""Entries of retention."""
assert [*KEPT] == [entry.name for entry in group_of("retention")]
_LANES = ("per_lane", "lane_rate", "aging", "ordered", "turns")
_OF_POOLS = ("running", "rate")

Kept: TypeAlias = timedelta | None
"""How long a finished job is kept. None: forever."""
NOTHING: Entries = {}

Result = TypeVar("Result")
Args = ParamSpec("Args")


def part(entries: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the entries with these names."""
    return {name: value for name, value in entries.items() if name in names}


def refused(check: Callable[Args, Result], *args: Args.args, **named: Args.kwargs) -> Result:
    """Call the check. A problem is an InvalidArgument with the same sentence, which begins with the entry."""
    try:
        return check(*args, **named)
    except ValueError as problem:
        name, _, rest = str(problem).partition(" ")
        raise InvalidArgument(name, rest) from None


# ---------------------------------------------------------------- values in force


class Decided(NamedTuple):
    """A value in force, and who set it: operator, code, server, or pool."""

    value: Any
    by: str


def in_force(operator: Entries, declared: Entries, server: Entries = NOTHING) -> dict[str, Decided]:
    """Return the value in force of each entry, and who set it."""
    owners = {"operator": operator, "code": declared, "server": server}
    return {
        name: next(Decided(entries[name], who) for who, entries in owners.items() if name in entries)
        for name in ENTRIES
        if name in operator or name in declared or name in server
    }


def values_of(decided: Mapping[str, Decided]) -> dict[str, Any]:
    return {name: value for name, (value, _) in decided.items()}


def strictest(declared: Iterable[Entries]) -> dict[str, Any]:
    """Return the strictest value of each limit. No pool or aging is stricter: the last one counts."""
    declared = list(declared)
    values = {name: [entries[name] for entries in declared if name in entries] for name in LIMITS}
    return {name: ENTRIES[name].join(found) for name, found in values.items() if found}


# ---------------------------------------------------------------- owners


@dataclass(frozen=True, slots=True)
class Declaration:
    """Limits that the code of one or several workers declares for a topic."""

    entries: Entries
    workers: int
    worker_id: str
    """The last worker that declared them."""
    declared_at: datetime
    missing_for: timedelta | None = None
    """How long ago the last worker disconnected. None: a worker is connected."""

    @property
    def counts(self) -> bool:
        return self.missing_for is None or self.missing_for < GRACE


@dataclass(frozen=True, slots=True)
class Owners:
    """The settings of a topic by owner: what operators have set, and what workers declare."""

    topic: str
    operator: Entries = field(default_factory=dict)
    set_by: str = ""
    set_at: datetime | None = None
    declarations: Sequence[Declaration] = ()
    """Of limits. The oldest first."""
    is_served: bool = False
    """A worker without a declaration serves the topic, and no other does."""
    has_moved: bool = False
    """A worker has connected or gone since this was last recorded."""
    runs: Entries = field(default_factory=dict)
    """The newest declaration of how jobs run."""
    runs_by: str = ""
    runs_at: datetime | None = None

    @property
    def standing(self) -> Sequence[Declaration]:
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
    def declared_limits(self) -> dict[str, Any]:
        """The strictest entries of the standing declarations."""
        return strictest(declaration.entries for declaration in self.standing)

    @property
    def declared(self) -> dict[str, Any]:
        """What counts of the declarations."""
        return {**self.declared_limits, **self.runs}

    @property
    def declared_last(self) -> tuple[datetime | None, str]:
        """When a worker last declared something that counts, and which."""
        said = [(each.declared_at, each.worker_id) for each in self.standing if each.entries]
        said += [(self.runs_at, self.runs_by)] if self.runs and self.runs_at is not None else []
        return max(said, default=(None, ""))

    @property
    def limits(self) -> dict[str, Decided]:
        """The limits in force, before pools: other topics of the pool may have smaller numbers."""
        decided = in_force(part(self.operator, LIMITS), self.declared_limits)
        return _with_what_is_implied(self.topic, decided)

    @property
    def differing(self) -> Sequence[Declaration]:
        """The declarations that count, if they are not all the same."""
        standing = self.standing
        return standing if any(each.entries != standing[0].entries for each in standing) else ()

    @property
    def has_no_limits(self) -> bool:
        return not part(self.operator, LIMITS) and not any(each.entries for each in self.declarations)


def _with_what_is_implied(topic: str, decided: dict[str, Decided]) -> dict[str, Decided]:
    """Order needs one job of a lane at a time, and every entry about lanes has them take turns."""
    ordered, pool = decided.get("ordered"), decided.get("pool")
    if pool is not None and pool.value == topic:
        del decided["pool"]
    if ordered is not None and ordered.value:
        decided["per_lane"] = Decided(1, ordered.by)
    elif ordered is not None:
        del decided["ordered"]
    lanes = [decided[name] for name in _LANES if name in decided and decided[name].value is not False]
    if lanes:
        decided["turns"] = Decided(True, lanes[0].by)
    else:
        decided.pop("turns", None)
    return {name: decided[name] for name in LIMITS if name in decided}


def limits_in_force(owners: Collection[Owners]) -> dict[str, dict[str, Decided]]:
    """Return the limits in force of each limited topic.

    Topics of a pool share its smallest numbers. Numbers set by operators win over declared numbers.
    A declared pool does not count if another topic has its name: they would share its slots.
    """
    topics = {owner.topic for owner in owners if not owner.has_no_limits}
    wanted: dict[str, dict[str, Decided]] = {}
    shared: dict[str, list[Entries]] = {}
    by_operators: dict[str, list[Entries]] = {}
    for owner in owners:
        own = owner.limits
        if "pool" in own and "pool" not in owner.operator and own["pool"].value in topics:
            del own["pool"]
        if own.keys() <= {"pool"}:
            continue  # it limits nothing: it has no number, no rate and no lanes
        wanted[owner.topic] = own
        # A topic without a pool belongs to a pool with the topic's name.
        pool = own["pool"].value if "pool" in own else owner.topic
        shared.setdefault(pool, []).append(part(values_of(own), _OF_POOLS))
        by_operators.setdefault(pool, []).append(part(owner.operator, _OF_POOLS))
    for topic, own in wanted.items():
        pool = own["pool"].value if "pool" in own else topic
        numbers = {**strictest(shared[pool]), **strictest(by_operators[pool])}
        for name, number in numbers.items():
            if name not in own or own[name].value != number:
                own[name] = Decided(number, "pool")
        wanted[topic] = {name: own[name] for name in LIMITS if name in own}
    return wanted


# ---------------------------------------------------------------- declarations


@dataclass(frozen=True, slots=True)
class Replaced:
    """How jobs ran by the declaration of another worker, which said otherwise."""

    topic: str
    entries: Entries
    by: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class OwnRow:
    """What is stored of one worker for a topic."""

    entries: Entries
    is_missing: bool = False
    """The worker was disconnected."""


def own_entries(declared: Entries, owners: Owners, worker: str) -> dict[str, Any]:
    """Return what to store for the worker.

    How jobs run is stored with the worker whose declaration holds. Another that declares the same has only
    its limits stored, and most workers have none.
    """
    runs = part(declared, RUNS)
    holds = runs == owners.runs and owners.runs_by != worker
    return part(declared, LIMITS) if holds else {**part(declared, LIMITS), **runs}


def is_news(declared: Entries, own: OwnRow | None, owners: Owners, worker: str) -> bool:
    """Whether a declaration changes what is stored."""
    if part(declared, RUNS) != owners.runs:
        return True
    entries = own_entries(declared, owners, worker)
    if own is None:
        return bool(entries)
    return own.entries != entries or own.is_missing


# ---------------------------------------------------------------- retention


@dataclass(frozen=True, slots=True)
class Grace:
    """How long the longer duration counts on after a retention was shortened."""

    span: timedelta = timedelta()
    server: Entries = field(default_factory=dict)
    """The settings of the server."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """Durations from before the last change. They count until `shorter_from`."""

    before: Entries = field(default_factory=dict)
    shorter_from: datetime | None = None
    """When the shortened durations start to count. None: nothing was shortened lately."""

    def at(self, now: datetime) -> Shortened:
        """Return what still counts at this time."""
        return self if self.shorter_from is not None and self.shorter_from > now else NOT_SHORTENED


NOT_SHORTENED = Shortened()


def shortened(old: Entries, new: Entries, known: Shortened, grace: Grace, now: datetime) -> Shortened:
    """Return which longer durations count on, when an operator's entries change from old to new.

    Entries that get shorter than what is in force start the grace time. Setting the same value again
    does not start it anew, and a value that is as long as what is in force ends it.
    """
    counting = known.at(now).before
    before: dict[str, Keep] = {}
    shorter_from = known.shorter_from
    for name in KEPT:
        was, wanted = (entries.get(name, grace.server.get(name, "forever")) for entries in (old, new))
        if was == wanted:
            if name in counting:
                before[name] = counting[name]
        elif grace.span and _length(held := counting.get(name, was)) > _length(wanted):
            before[name] = held
            shorter_from = now + grace.span
    return Shortened(before, shorter_from) if before else NOT_SHORTENED


def _length(keep: Keep) -> timedelta:
    return timedelta.max if isinstance(keep, str) else keep


def kept_by_status(entries: Entries) -> dict[JobStatus, Kept]:
    """Return the durations in the entries by status."""
    return {
        status: None if (keep := entries[name]) == "forever" else keep
        for name, status in KEPT.items()
        if name in entries
    }


# ---------------------------------------------------------------- all of it


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic: what its owners say, and what is in force."""

    owners: Owners
    decided: Mapping[str, Decided]
    """The values in force. The strictest numbers of a pool are those of all its topics."""
    shortened: Shortened = NOT_SHORTENED
    pending: str = ""
    """The clause of what accepted limits wait for; empty: they are in force."""

    @property
    def topic(self) -> str:
        return self.owners.topic


def settings_of(
    owners: Owners, limits: Mapping[str, Decided], server: Entries, known: Shortened, pending: str
) -> TopicSettings:
    """Return the settings of a topic, with its limits in force."""
    others = in_force(part(owners.operator, (*RUNS, *KEPT)), owners.runs, server)
    decided = {**limits, **others}
    return TopicSettings(owners, {name: decided[name] for name in ENTRIES if name in decided}, known, pending)


# ---------------------------------------------------------------- as they are stored


class Runs(NamedTuple):
    """How the jobs of a topic run, as far as the servers have to know. None: as their settings say."""

    max_attempts: int | None
    attempts_by_operator: bool
    attempt_timeout: timedelta | None


class OwnTopic(NamedTuple):
    """A topic with settings of its own."""

    topic: str
    shortened: Shortened


class Declared(NamedTuple):
    """What a declaration has changed."""

    topics: Collection[str]
    replaced: Sequence[Replaced]
    """Of the topics whose jobs run otherwise now. Without entries: nothing was declared before."""


MAX_WEIGHT = 1000
LONGEST_HOLD = timedelta(days=365)
# The longest hold by a worker, for an API that refuses calls until the next day's quota.
LONGEST_HOLD_OF_WORKERS = timedelta(days=1)


class HeldUntil(NamedTuple):
    """None: the topic is not held."""

    until: datetime | None


class Repaired(NamedTuple):
    """The counters that a sweep corrected. Not zero: someone changed rows, or there is a bug."""

    pools: int
    lanes: int


class OpenTransaction(NamedTuple):
    """A transaction that has to end before a change of limits comes into force."""

    pid: int | None
    application: str | None
    user: str | None
    gid: str | None
    """The name of a prepared transaction, which belongs to no session."""
    number: str = ""
    """Of the transaction: a session has another one later."""

    def __str__(self) -> str:
        if self.pid is None:
            return f"the prepared transaction {self.gid!r}"
        said = [self.application or "", f"user {self.user}" if self.user else ""]
        return f"pid {self.pid} ({', '.join(filter(None, said))})" if any(said) else f"pid {self.pid}"


def pending(holders: Sequence[OpenTransaction]) -> str:
    """The clause that states when a change comes into force."""
    if not holders:
        return "in force once another transaction, which has jobs of the topic locked, has ended"
    have = "has" if len(holders) == 1 else "have"
    return f"in force once {' and '.join(map(str, holders))} {have} ended"


@dataclass(frozen=True, slots=True)
class Limits:
    """A limited topic: the limits in force, and its state."""

    topic: str
    in_force: Entries
    running: int
    """Over all topics of the pool, if there is one."""
    closed_until: datetime | None = None
    """Held: no job starts before then."""
    next_start_at: datetime | None = None
    """The rate is spent until then."""
    started: int = 0
    """The starts that the rate counts now."""
    lanes_are_full: bool = False
    """Jobs stand in lanes, and no lane may start one: by its limit, its rate, or its order."""

    @property
    def is_laned(self) -> bool:
        return "turns" in self.in_force

    @property
    def why_full(self) -> str:
        """The clause that states which limit lets no job start now; empty if none does."""
        if self.closed_until is not None:
            return "is held"
        if self.next_start_at is not None:
            return "has spent its rate"
        running, pool = self.in_force.get("running"), self.in_force.get("pool")
        if running is not None and self.running >= running:
            return "is at its limit" if pool is None else f"waits for its pool {pool}"
        return "has no lane that may start a job" if self.lanes_are_full else ""


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane and its state. `waiting` counts to a thousand."""

    lane: str
    waiting: int
    running: int
    oldest: datetime | None
    """When the next job was submitted."""
    next_start_at: datetime | None = None
    weight: int = 1
    limit: int | None = None
    """Its own, instead of per_lane."""


def check_weight(weight: int) -> int:
    if not 1 <= weight <= MAX_WEIGHT:
        raise InvalidArgument("weight", f"is {weight}: it must be from 1 to {MAX_WEIGHT:,}.")
    return weight


MOST_COMPARED = 200
_MOST_LETTERS_APART = 3
_SIMILAR = 0.75


def similar_topic(topic: str, served: Iterable[str]) -> str:
    """Return the served topic whose name is most similar, or "" if none is."""
    near = (name for name in served if abs(len(name) - len(topic)) <= _MOST_LETTERS_APART)
    similar = get_close_matches(topic, islice(near, MOST_COMPARED), n=1, cutoff=_SIMILAR)
    return similar[0] if similar else ""
