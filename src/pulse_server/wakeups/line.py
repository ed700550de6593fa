"""LISTEN and NOTIFY on a separate connection, never inside the transaction of a submit. ADR-0006

NOTIFY takes a lock that every other notifying commit waits for. Inside submits it cut their rate to a
twentieth. Here at most one small message per NOTIFY_SPACING is sent. A message may be lost: the dispatch tick
still finds the work, and a server whose line was down looks up the claims it knows.

Messages are texts that fit into a NOTIFY. Keys may be missing, and unknown keys are ignored: servers of two
releases share a line during an upgrade. Values are checked. Servers send none that fails; one of another type
or size would fail much later, in the stream of a watcher, or in a statement that looks up a thousand claims.

Any role that may connect can LISTEN and NOTIFY. The name of the channel is a secret, and so is the key that
seals the messages. ADR-0084
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from pulse import failpoints
from pulse_server.base import tuning
from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.base.ids import Seal
from pulse_server.base.loops import lease_clock
from pulse_server.database.connector import Connector, DatabaseSession, describe
from pulse_server.database.statements import statements
from pulse_server.jobs.rules import Claim, JobStatus, Level, Progress
from pulse_server.wakeups.watchers import Transition, Wakeup

_INT32 = 2**31 - 1
# The last second of the year 9999, as datetime has it.
_LAST_SECOND = 253_402_300_799
_TEXT_CHARACTERS = 1000


def checked_text(value: object) -> str:
    if type(value) is not str or len(value) > _TEXT_CHARACTERS:
        raise ValueError("not a text, or a long one")
    value.encode()  # half of a pair of surrogates cannot be encoded
    return value


def checked_optional_text(value: object) -> str | None:
    return None if value is None else checked_text(value)


def checked_whole(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= _INT32:
        raise ValueError("not a whole number, or out of range")
    return value


def checked_optional_whole(value: object) -> int | None:
    return None if value is None else checked_whole(value)


def checked_priority(value: object) -> int:
    return checked_whole(value, -_INT32 - 1)


def checked_number(value: object, most: float) -> float:
    """A number whose distance from zero is at most `most`."""
    if not isinstance(value, (int, float)) or not abs(value) <= most:  # NaN compares as false
        raise ValueError("not a number, or out of range")
    return float(value)


def checked_fraction(value: object) -> float:
    return checked_number(value, 1.0)


def checked_moment(value: object) -> datetime:
    seconds = checked_number(value, _LAST_SECOND)
    if seconds < 0:
        raise ValueError("before 1970")
    return datetime.fromtimestamp(seconds, UTC)


def transition_to_text(transition: Transition) -> str:
    """The transition as JSON, without its progress: servers of the previous release read it."""
    *facts, at, _ = transition
    return _text_of_transition([*facts, at.timestamp()])


def transition_from_entry(
    job_id: object,
    topic: object,
    status: object,
    attempt: object,
    worker_id: object,
    error: object,
    at: object,
) -> Transition:
    return Transition(
        checked_text(job_id),
        checked_text(topic),
        JobStatus(checked_text(status)),
        checked_whole(attempt),
        checked_optional_text(worker_id),
        checked_text(error),
        checked_moment(at),
    )


def progress_to_text(transition: Transition) -> str:
    """The transition of a job that runs as before, with its progress."""
    job_id, topic, _, attempt, worker_id, _, at, progress = transition
    assert progress is not None
    fraction, text, _, _, reported_at, since, since_fraction = progress
    times = reported_at.timestamp(), None if since is None else since.timestamp()
    return _text_of_transition(
        [job_id, topic, attempt, worker_id, at.timestamp(), fraction, text, *times, since_fraction]
    )


def progress_from_entry(
    job_id: object,
    topic: object,
    attempt: object,
    worker_id: object,
    at: object,
    fraction: object,
    text: object,
    reported_at: object,
    since: object,
    since_fraction: object,
) -> Transition:
    progress = Progress(
        None if fraction is None else checked_fraction(fraction),
        checked_text(text),
        "",
        checked_whole(attempt),
        checked_moment(reported_at),
        None if since is None else checked_moment(since),
        checked_fraction(since_fraction),
    )
    return Transition(
        checked_text(job_id),
        checked_text(topic),
        JobStatus.RUNNING,
        progress.attempt,
        checked_optional_text(worker_id),
        "",
        checked_moment(at),
        progress,
    )


def in_parts(texts: Iterable[str], most_bytes: int) -> list[list[str]]:
    """The texts in parts, as many per part as fit."""
    parts: list[list[str]] = [[]]
    size = 0
    for text in texts:
        size += len(text) + 1
        if size > most_bytes:
            parts.append([])
            size = len(text) + 1
        parts[-1].append(text)
    return parts


def _text_of_transition(entry: object) -> str:
    return json.dumps(entry, separators=(",", ":"))


# Postgres takes payloads below 8,000 bytes. The rest goes into the next message.
NOTIFY_BYTES = 7500
# Messages about ended claims in one round: some 3,000 claims. The rest follows in the next round, so that a
# cancel of 100,000 jobs blocks neither the line nor the event loops of the other servers.
NOTIFY_ROUND = 32
# With more topics than this, "look everywhere" is sent: they would not fit into a message.
NOTIFY_TOPICS = 1000
# Ended claims that may wait for a message, some 20 MB. Past this, the other servers look up all
# claims they hold.
ENDED_WAITING = 100_000
# Transitions per round of messages (5,000 a second), and transitions that may wait for a round.
TRANSITIONS_RELAYED = 100
TRANSITIONS_WAITING = 1000
# Jobs whose newest progress may wait for the next round. Other jobs report again within a second.
PROGRESS_WAITING = 100

_EVERYWHERE = None
# The other fields of a message with claims or transitions take less than the difference.
_LIST_BYTES = NOTIFY_BYTES - 100
# Of a level: longer ago than any job was submitted.
_LONGEST_AGE = 1e10


class WakeupOutbox:
    """The content of the next messages.

    A round of messages is taken, and then confirmed with `sent` or taken back with `put_back`.
    Ended claims wait for at most one lease: after that no worker holds them. Claims that are
    dropped for this reason, or by a bound, become `claims_unknown`.
    """

    def __init__(self, lease: timedelta = tuning.LEASE_TTL, clock: Callable[[], float] = lease_clock) -> None:
        self._lease_seconds = lease.total_seconds()
        self._clock = clock
        self._ended: dict[Claim, float] = {}
        self._lapsed: dict[Claim, float] = {}
        self._ended_under_way: dict[Claim, float] = {}
        self._rest_under_way = Wakeup()
        self._transitions: list[Transition] = []
        # The newest transition of each job.
        self._progress: dict[str, Transition] = {}
        self._clear()

    def _clear(self) -> None:
        """Clear the parts that always fit into one round."""
        self._is_everywhere = False
        self._topics: set[str] = set()
        # The earliest submission per topic and priority, for topics whose new jobs all have a known
        # level.
        self._levels: dict[tuple[str, int], float] = {}
        self._without_level: set[str] = set()
        self._claims_unknown = False
        self._gate_changed = False
        self._settings_changed = False
        self._watching = False
        self._watching_progress = False
        self._awaiting = False
        self._asking = False
        self._missed = 0

    def add(self, wakeup: Wakeup) -> None:
        if wakeup.topics is None:
            self._is_everywhere = True
        else:
            self._topics.update(wakeup.topics)
        now = self._clock()
        self._add_levels(wakeup, now)
        self._ended.update(dict.fromkeys(wakeup.ended, now))
        self._lapsed.update(dict.fromkeys(wakeup.lapsed, now))
        self._claims_unknown |= wakeup.claims_unknown
        self._gate_changed |= wakeup.gate_changed
        self._settings_changed |= wakeup.settings_changed
        self._watching |= wakeup.watching
        self._watching_progress |= wakeup.watching_progress
        self._awaiting |= wakeup.awaiting
        self._asking |= wakeup.asking
        room = max(0, TRANSITIONS_WAITING - len(self._transitions))
        self._transitions += wakeup.transitions[:room]
        self._missed += wakeup.missed + max(0, len(wakeup.transitions) - room)
        for change in wakeup.progress:
            if change.job_id in self._progress or len(self._progress) < PROGRESS_WAITING:
                self._progress[change.job_id] = change
        self._bound()

    def _add_levels(self, wakeup: Wakeup, now: float) -> None:
        for topic, priority, age_seconds in wakeup.levels:
            since = now - age_seconds
            self._levels[topic, priority] = min(since, self._levels.get((topic, priority), since))
        named = {level.topic for level in wakeup.levels}
        self._without_level.update(topic for topic in wakeup.topics or () if topic not in named)

    def __bool__(self) -> bool:
        return self._has_wakeup or bool(self._transitions or self._missed or self._progress)

    @property
    def _has_wakeup(self) -> bool:
        return bool(
            self._is_everywhere
            or self._topics
            or self._ended
            or self._lapsed
            or self._claims_unknown
            or self._gate_changed
            or self._settings_changed
            or self._watching
            or self._awaiting
            or self._asking
        )

    @failpoints.after("wakeup.sending", ConnectionResetError)
    def take(self) -> list[str]:
        """The messages to send now. The first wakes dispatch. Claims and transitions may be left
        for the next round."""
        self._drop_old_claims()
        relayed = self._transitions[:TRANSITIONS_RELAYED]
        self._rest_under_way = Wakeup(
            topics=_EVERYWHERE if self._is_everywhere or self._topics else frozenset(),
            claims_unknown=self._claims_unknown or bool(self._lapsed),
            gate_changed=self._gate_changed,
            settings_changed=self._settings_changed,
            watching=self._watching,
            watching_progress=self._watching_progress,
            awaiting=self._awaiting,
            asking=self._asking,
            missed=self._missed + len(relayed),
        )
        messages = self._wakeups() if self._has_wakeup else []
        messages += self._news()
        del self._transitions[: len(relayed)]
        self._progress.clear()
        self._clear()
        return messages

    def sent(self) -> None:
        """Confirm that the taken messages were sent."""
        self._ended_under_way = {}
        self._rest_under_way = Wakeup()

    def put_back(self) -> None:
        """Take back messages that may not have been sent. Their content is sent again, the topics
        as "look everywhere"; transitions are counted as missed."""
        self._ended = self._ended_under_way | self._ended
        self.add(self._rest_under_way)
        self.sent()

    def _bound(self) -> None:
        if len(self._topics) > NOTIFY_TOPICS or len(self._levels) > NOTIFY_TOPICS:
            self._topics.clear()
            self._levels.clear()
            self._without_level.clear()
            self._is_everywhere = True
        if len(self._ended) + len(self._lapsed) > ENDED_WAITING:
            self._ended.clear()
            self._lapsed.clear()
            self._claims_unknown = True

    def _drop_old_claims(self) -> None:
        now = self._clock()
        for claims in (self._ended, self._lapsed):
            while claims and now - next(iter(claims.values())) > self._lease_seconds:
                del claims[next(iter(claims))]
                self._claims_unknown = True

    def _wakeups(self) -> list[str]:
        """The wake-up, and further messages for its claims, up to the bound of a round."""
        first: dict[str, object] = {
            "topics": _EVERYWHERE if self._is_everywhere else sorted(self._topics),
            "gate": self._gate_changed,
            "settings": self._settings_changed,
            "watching": self._watching,
            "watching_progress": self._watching_progress,
            "awaiting": self._awaiting,
            "asking": self._asking,
            "unknown": self._claims_unknown,
        }
        if len(_text(first)) > _LIST_BYTES:
            first["topics"] = _EVERYWHERE
        elif len(_text(first | {"levels": self._ages()})) <= _LIST_BYTES:
            first["levels"] = self._ages()
        messages: list[dict[str, Any]] = [first | {"ended": [], "lapsed": []}]
        size = len(_text(first))
        for key, claims in (("ended", self._ended), ("lapsed", self._lapsed)):
            while claims:
                claim = next(iter(claims))
                size += len(_text(claim)) + 1
                if size > _LIST_BYTES:
                    if len(messages) == NOTIFY_ROUND:
                        break
                    messages.append({"topics": [], "ended": [], "lapsed": []})
                    size = len(_text(claim)) + 1
                messages[-1][key].append(claim)
                announced_at = claims.pop(claim)
                if key == "ended":
                    self._ended_under_way[claim] = announced_at
        return [_text(message) for message in messages]

    def _ages(self) -> list[tuple[str, int, float]]:
        now = self._clock()
        return [
            (topic, priority, round(now - since, 3))
            for (topic, priority), since in self._levels.items()
            if topic not in self._without_level
        ]

    def _news(self) -> list[str]:
        """The transitions, as many per message as fit, and then the progress."""
        messages: list[str] = []
        if self._transitions or self._missed:
            texts = map(transition_to_text, self._transitions[:TRANSITIONS_RELAYED])
            parts = in_parts(texts, _LIST_BYTES)
            missed = [0] * (len(parts) - 1) + [self._missed]  # the last message counts the missed ones
            messages = [
                f'{{"topics":[],"ended":[],"transitions":[{",".join(part)}],"missed":{left_out}}}'
                for part, left_out in zip(parts, missed, strict=True)
            ]
        if self._progress:
            # Under a separate key: servers of the previous release ignore it.
            parts = in_parts(map(progress_to_text, self._progress.values()), _LIST_BYTES)
            messages += [f'{{"topics":[],"ended":[],"progress":[{",".join(part)}]}}' for part in parts]
        return messages


def read(payload: str) -> Wakeup | None:
    """Read the message of another server. None if it cannot be read."""
    try:
        message = json.loads(payload)
        topics = message["topics"]
        return Wakeup(
            topics=_EVERYWHERE if topics is None else frozenset(map(checked_text, topics)),
            levels=tuple(_level(*entry) for entry in message.get("levels", ())),
            ended=_claims(message["ended"]),
            lapsed=_claims(message.get("lapsed", ())),
            claims_unknown=bool(message.get("unknown")),
            gate_changed=bool(message.get("gate")),
            settings_changed=bool(message.get("settings")),
            watching=bool(message.get("watching")),
            watching_progress=bool(message.get("watching_progress")),
            awaiting=bool(message.get("awaiting")),
            asking=bool(message.get("asking")),
            transitions=tuple(transition_from_entry(*entry) for entry in message.get("transitions", ())),
            missed=checked_whole(message.get("missed", 0)),
            progress=tuple(progress_from_entry(*entry) for entry in message.get("progress", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _claims(entries: Iterable[Any]) -> tuple[Claim, ...]:
    return tuple(_claim(*entry) for entry in entries)


def _claim(job_id: object, worker_id: object, attempt: object, run: object = None) -> Claim:
    return Claim(
        checked_text(job_id),
        checked_optional_text(worker_id),
        checked_optional_whole(attempt),
        checked_optional_whole(run),
    )


def _level(topic: object, priority: object, age_seconds: object) -> Level:
    return Level(checked_text(topic), checked_priority(priority), checked_number(age_seconds, _LONGEST_AGE))


def _text(message: object) -> str:
    return json.dumps(message, separators=(",", ":"))


# ---------------------------------------------------------------- wakeup strangers
# Messages on the channel that no server of this queue has sent: their number is bounded, and logged.

STRANGE_MINUTE = timedelta(minutes=1)
# Opened and refused in a minute: 10 µs each. Past this the line is closed until the minute is over.
STRANGE_MESSAGES = 1000
_PIDS_LOGGED = 10


class Strangers:
    """Counts the messages of others by the minute. The first minute begins with the first message."""

    def __init__(self, clock: Callable[[], float] = lease_clock) -> None:
        self._clock = clock
        self._minute_ends = clock()
        self._count = 0
        self._pids: dict[int, None] = {}

    @property
    def are_too_many(self) -> bool:
        return self._count > STRANGE_MESSAGES

    @property
    def seconds_left(self) -> float:
        """The rest of the minute."""
        return max(0.0, self._minute_ends - self._clock())

    def met(self, pid: int) -> None:
        """A session with this process id sent a message."""
        self._count += 1
        if len(self._pids) < _PIDS_LOGGED:
            self._pids[pid] = None
        self.look()

    def look(self) -> None:
        """Log how many messages came, once a minute, if there were any."""
        if not self._count or self._clock() < self._minute_ends:
            return
        log.warning("foreign_wakeups", extra={"count": self._count, "pids": list(self._pids)})
        self._minute_ends = self._clock() + STRANGE_MINUTE.total_seconds()
        self._count = 0
        self._pids.clear()


# ---------------------------------------------------------------- wakeups

# At most one NOTIFY per interval: each costs a commit and wakes every server.
NOTIFY_SPACING = timedelta(milliseconds=20)
LISTEN_RETRY = timedelta(seconds=2)
# The line is tested this often: it may have been cut without notice, or the secret may have been replaced.
LISTEN_CHECK = timedelta(seconds=15)

log = logging.getLogger(__name__)

_SQL = statements("wakeups/line.sql")
_NO_SECRET = (
    "The row of pulse.cluster_secret is missing, and servers cannot notify each other without it. "
    "Put it back: INSERT INTO pulse.cluster_secret DEFAULT VALUES;"
)
_QUEUE_IS_FULL = (
    "The NOTIFY queue of the database server is full: a session that has called LISTEN, in any database, "
    "has been in a transaction for long. The log of Postgres names it. Until it has ended, work is found by "
    "polling."
)


def wakeup_line(connector: Connector, lease: timedelta) -> PostgresWakeupLine | NoWakeupLine:
    """The line to the other servers, if the connections allow one."""
    return NoWakeupLine() if connector.behind_pooler else PostgresWakeupLine(connector, lease)


class NoWakeupLine:
    """Behind a transaction pooler LISTEN is impossible: the ticks find the work."""

    def announce(self, wakeup: Wakeup) -> None:
        return

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        return

    async def run(self) -> None:
        """Log that there is no line, and return."""
        log.info("wakeups_off", extra={"reason": "PULSE_DB_POOLER is on; work is found by polling"})


class PostgresWakeupLine:
    def __init__(self, connector: Connector, lease: timedelta = tuning.LEASE_TTL) -> None:
        self._connector = connector
        self._outbox = WakeupOutbox(lease)
        self._pending = asyncio.Event()
        self._heard: list[Callable[[Wakeup], None]] = []
        self._pid = 0
        self._is_down = False
        self._strangers = Strangers()

    def announce(self, wakeup: Wakeup) -> None:
        self._outbox.add(wakeup)
        if self._outbox:
            self._pending.set()

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        self._heard.append(heard)

    async def run(self) -> None:
        """Keep the line up until canceled."""
        while True:
            try:
                await self._hold_the_line()
            except (
                OSError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,  # the session was terminated while it was idle
                PulseError,
            ) as error:
                if not self._is_down:
                    log.warning("wakeups_down", extra={"reason": describe(error)})
                self._is_down = True
            rest = self._strangers.seconds_left if self._strangers.are_too_many else 0.0
            await asyncio.sleep(max(LISTEN_RETRY.total_seconds(), rest))
            self._strangers.look()

    async def _hold_the_line(self) -> None:
        connection = await self._connector.connect(
            settings={"application_name": "pulsed wakeups"}, command_timeout=tuning.STATEMENT_TIMEOUT
        )
        try:
            secret = await _read_secret(connection)
            seal = Seal(secret)
            # Not get_server_pid: a pooler in session mode makes one up, and no message would open.
            self._pid = await connection.fetchval("SELECT pg_backend_pid()")

            def on_notification(_connection: Any, pid: int, _channel: str, payload: object) -> None:
                if pid != self._pid and not self._strangers.are_too_many:
                    self._receive(connection, seal.opened(str(payload), pid), pid)

            await connection.add_listener(seal.channel, on_notification)
            # Roles that see the statements of others see the last one: it must not be the LISTEN. A queue
            # that was full stays so, also once its slowest reader has gone, until this function is called.
            if await connection.fetchval("SELECT /* pulse:listening */ pg_notification_queue_usage()") >= 1:
                raise Unavailable(_QUEUE_IS_FULL)
            # A line that was cut without notice is detected when the next message cannot be sent.
            connection.add_termination_listener(lambda _: self._pending.set())
            if self._is_down:
                log.info("wakeups_recovered")
                self._is_down = False
            # Messages from other servers are lost while the line is down. Messages of this server
            # are still sent.
            self._notify(Wakeup(topics=None, gate_changed=True, settings_changed=True, claims_unknown=True))
            if self._outbox:
                self._pending.set()
            check_at = lease_clock() + LISTEN_CHECK.total_seconds()
            while True:
                with suppress(TimeoutError):
                    # Not wait_for: before Python 3.12 it can swallow the cancellation that ends this loop.
                    async with asyncio.timeout(max(0.0, check_at - lease_clock())):
                        await self._pending.wait()
                if self._strangers.are_too_many:
                    raise Unavailable(
                        "Another role of the database floods the channel. Until the minute is over, work is "
                        "found by polling."
                    )
                if lease_clock() >= check_at:
                    await self._check(connection, secret)
                    check_at = lease_clock() + LISTEN_CHECK.total_seconds()
                    continue
                self._pending.clear()
                await self._send(connection, seal)
                if self._outbox:
                    self._pending.set()
                await asyncio.sleep(NOTIFY_SPACING.total_seconds())
        finally:
            connection.terminate()

    async def _send(self, connection: DatabaseSession, seal: Seal) -> None:
        try:
            await connection.execute(
                "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message",
                seal.channel,
                [seal.sealed(message, self._pid) for message in self._outbox.take()],
            )
        except BaseException:
            self._outbox.put_back()
            raise
        self._outbox.sent()

    async def _check(self, connection: DatabaseSession, secret: bytes) -> None:
        """Test the line: a quiet line may be cut, or lead to a host that is no longer the
        primary."""
        self._strangers.look()
        if not self._connector.is_current(connection):
            raise ConnectionResetError("the database has moved")
        if await _read_secret(connection) != secret:
            raise ConnectionResetError("the secret of the queue was replaced")

    def _receive(self, connection: DatabaseSession, message: str | None, pid: int) -> None:
        """Pass on a message of another server. None: the session with this process id is no server's."""
        if message is None:
            self._strangers.met(pid)
            if self._strangers.are_too_many:
                connection.terminate()  # nothing more is read; the loop of the line ends
        elif (wakeup := read(message)) is None:
            log.warning("wakeup_not_understood")
        else:
            self._notify(wakeup)

    def _notify(self, wakeup: Wakeup) -> None:
        for heard in self._heard:
            heard(wakeup)


async def _read_secret(connection: DatabaseSession) -> bytes:
    secret: bytes | None = await connection.fetchval(_SQL["read_secret"])
    if secret is None:
        raise Unavailable(_NO_SECRET)
    return secret
