"""What servers tell each other, as texts that fit into a NOTIFY.

Keys may be missing and unknown ones are passed over: servers of two releases share a line during an upgrade.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pulse import failpoints
from pulse_server import tuning
from pulse_server.domain.jobs import Claim
from pulse_server.domain.status import JobStatus
from pulse_server.domain.transitions import Transition
from pulse_server.repos.wakeups import Wakeup

_EVERYWHERE = None
# What is around the transitions in their message takes less than the difference.
_NEWS_BYTES = tuning.NOTIFY_BYTES - 100


class Outbox:
    """What is to be told with the next message."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._is_everywhere = False
        self._topics: set[str] = set()
        self._ended: set[Claim] = set()
        self._lapsed: set[Claim] = set()
        self._gate_changed = False
        self._watching = False
        self._transitions: list[Transition] = []
        self._missed = 0

    def add(self, wakeup: Wakeup) -> None:
        if wakeup.topics is None:
            self._is_everywhere = True
        else:
            self._topics.update(wakeup.topics)
        self._ended.update(wakeup.ended)
        self._lapsed.update(wakeup.lapsed)
        self._gate_changed |= wakeup.gate_changed
        self._watching |= wakeup.watching
        room = max(0, tuning.TRANSITIONS_WAITING - len(self._transitions))
        self._transitions += wakeup.transitions[:room]
        self._missed += wakeup.missed + max(0, len(wakeup.transitions) - room)

    def __bool__(self) -> bool:
        return self._has_wakeup or bool(self._transitions or self._missed)

    @property
    def _has_wakeup(self) -> bool:
        return bool(
            self._is_everywhere
            or self._topics
            or self._ended
            or self._lapsed
            or self._gate_changed
            or self._watching
        )

    @failpoints.after("wakeup.sending", ConnectionResetError)
    def take(self) -> list[str]:
        """The messages to send now, the one that wakes dispatch first. Transitions may be left for later."""
        messages = []
        if self._has_wakeup:
            messages.append(self._wakeup())
        messages += self._news()
        left = self._transitions[tuning.TRANSITIONS_RELAYED :]
        self._clear()
        self._transitions = left
        return messages

    def _wakeup(self) -> str:
        rest = {"gate": self._gate_changed, "watching": self._watching}
        topics = _EVERYWHERE if self._is_everywhere else sorted(self._topics)
        message = _text(
            {"topics": topics, "ended": sorted(self._ended), "lapsed": sorted(self._lapsed)} | rest
        )
        if len(message) > tuning.NOTIFY_BYTES:
            # The claims that are left out are learnt from their next heartbeat.
            message = _text({"topics": _EVERYWHERE, "ended": [], "lapsed": []} | rest)
        return message

    def _news(self) -> list[str]:
        """The transitions, as many in each message as fit. The last one tells what was left out."""
        if not self._transitions and not self._missed:
            return []
        parts: list[list[str]] = [[]]
        size = 0
        for transition in self._transitions[: tuning.TRANSITIONS_RELAYED]:
            text = _text(_as_list(transition))
            size += len(text) + 1
            if size > _NEWS_BYTES:
                parts.append([])
                size = len(text) + 1
            parts[-1].append(text)
        missed = [0] * (len(parts) - 1) + [self._missed]
        return [
            f'{{"topics":[],"ended":[],"transitions":[{",".join(part)}],"missed":{left_out}}}'
            for part, left_out in zip(parts, missed, strict=True)
        ]


def read(payload: str) -> Wakeup | None:
    """What another server says; None if it cannot be understood."""
    try:
        message = json.loads(payload)
        topics = message["topics"]
        return Wakeup(
            topics=_EVERYWHERE if topics is None else frozenset(topics),
            ended=_claims(message["ended"]),
            lapsed=_claims(message.get("lapsed", ())),
            gate_changed=bool(message.get("gate")),
            watching=bool(message.get("watching")),
            transitions=tuple(_transition(*entry) for entry in message.get("transitions", ())),
            missed=int(message.get("missed", 0)),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _claims(entries: Iterable[Any]) -> tuple[Claim, ...]:
    return tuple(Claim(*entry) for entry in entries)


def _as_list(transition: Transition) -> list[object]:
    *facts, at = transition
    return [*facts, at.timestamp()]


def _transition(
    job_id: str, topic: str, status: str, attempt: int, worker_id: str | None, error: str, at: float
) -> Transition:
    return Transition(
        job_id, topic, JobStatus(status), attempt, worker_id, error, datetime.fromtimestamp(at, UTC)
    )


def _text(message: object) -> str:
    return json.dumps(message, separators=(",", ":"))
