"""The messages between servers, as texts that fit into a NOTIFY.

Keys may be missing, and unknown keys are ignored: servers of two releases share a line during an
upgrade. Values are checked: one of another type would fail in the stream of a watcher.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from pulse import failpoints
from pulse_server.base import tuning
from pulse_server.base.loops import lease_clock
from pulse_server.domain.transitions import Transition
from pulse_server.jobs.rules import Claim, Level
from pulse_server.postgres import wakeup_values as values
from pulse_server.postgres.wakeup_transitions import (
    in_parts,
    progress_from_entry,
    progress_to_text,
    transition_from_entry,
    transition_to_text,
)
from pulse_server.wakeups import Wakeup

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


class Outbox:
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
            topics=_EVERYWHERE if topics is None else frozenset(map(values.text, topics)),
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
            missed=values.whole(message.get("missed", 0)),
            progress=tuple(progress_from_entry(*entry) for entry in message.get("progress", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _claims(entries: Iterable[Any]) -> tuple[Claim, ...]:
    return tuple(_claim(*entry) for entry in entries)


def _claim(job_id: object, worker_id: object, attempt: object, run: object = None) -> Claim:
    return Claim(
        values.text(job_id),
        values.optional_text(worker_id),
        values.optional_whole(attempt),
        values.optional_whole(run),
    )


def _level(topic: object, priority: object, age_seconds: object) -> Level:
    return Level(values.text(topic), values.priority(priority), values.number(age_seconds, _LONGEST_AGE))


def _text(message: object) -> str:
    return json.dumps(message, separators=(",", ":"))
