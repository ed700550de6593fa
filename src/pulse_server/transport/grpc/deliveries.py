"""Encodes deliveries for the stream of a worker, like protobuf and in less than half the time.

A drain sends a thousand jobs in a message. Most jobs have only an id, a topic, a payload, an
attempt, a run and a limit of attempts: their bytes are joined here. protobuf encodes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from struct import Struct

from pulse.v1 import pulse_pb2 as pb
from pulse_server.dispatch.workers import Delivery
from pulse_server.doors.boundary import wire_duration
from pulse_server.jobs import messages
from pulse_server.jobs.rules import ClaimedJob
from pulse_server.topics.service import TopicRules
from pulse_server.transport.grpc import convert_work

# Keys of fields: the number of the field, and how its value is encoded.
_ASSIGNMENTS = b"\x12"  # of StreamJobsResponse: 2, with a length
_CLOCK_SECONDS_KEY = 0x31  # 6, a double
_CLOCK_SECONDS = Struct("<Bd")
_TOPIC = b"\x12"  # of JobAssignment: 2, with a length
_PAYLOAD = b"\x1a"  # 3, with a length
# The id (1, with its length of 36), topic and payload; attempt (4), max_attempts (6), run (12) as varints.
_BODY = b"\x0a\x24%b%b%b%b\x20%b\x30%b\x60%b"
_ID_LENGTH = 0x24
# Topics whose bytes are kept. More than a server usually has at a time; a few hundred kilobytes at most.
_TOPICS_KEPT = 1000


def _varint(number: int) -> bytes:
    """Encode a number that is not negative."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


# By number. Nearly all attempts and sizes are small.
_SMALL = [_varint(number) for number in range(4096)]


class DeliveryEncoder:
    """Encodes each delivery as a StreamJobsResponse. Keeps the bytes of topics, with their time limits."""

    def __init__(self, rules: TopicRules) -> None:
        self._rules = rules
        self._time_limits: Mapping[str, timedelta] = {}
        self._topics: dict[str, bytes] = {}

    def encode(self, delivery: Delivery) -> bytes:
        assignments = self.encode_assignments(delivery.jobs)
        is_plain = delivery.recalled is None and not (delivery.stops_worker or delivery.is_last)
        if assignments and not delivery.stops and is_plain:
            return assignments + _CLOCK_SECONDS.pack(_CLOCK_SECONDS_KEY, delivery.claimed_at)
        message = pb.StreamJobsResponse(
            clock_seconds=delivery.claimed_at,
            stop=[messages.wire_claim(claim) for claim in delivery.stops],
            draining=delivery.is_last,
            recall=None if delivery.recalled is None else pb.Recall(topics=sorted(delivery.recalled)),
            stop_worker=delivery.stops_worker,
        )
        return assignments + message.SerializeToString()

    def encode_assignments(self, jobs: Iterable[ClaimedJob]) -> bytes:
        """Return the bytes of the field `assignments`, to which other fields can be appended."""
        if self._time_limits is not self._rules.time_limits:
            self._time_limits = self._rules.time_limits
            self._topics.clear()
        small, topics = _SMALL, self._topics
        parts: list[bytes] = []
        add = parts.append
        for job in jobs:
            (
                job_id,
                topic,
                payload,
                attempt,
                run,
                priority,
                max_attempts,
                metadata,
                key,
                _,
                confirm,
                _,
                _,
                _,
                lane,
                progress,
                steps,
            ) = job
            id_bytes, size = job_id.encode(), len(payload)
            if (
                not size
                or not topic
                or priority
                or metadata
                or key
                or confirm
                or lane
                or progress
                or steps is not None
                or not (0 < attempt < 4096 and 0 < max_attempts < 4096 and 0 < run < 4096)
                or len(id_bytes) != _ID_LENGTH
            ):
                body = convert_work.assignment(job).SerializeToString() + self._timeout(topic)
            else:
                body = _BODY % (
                    id_bytes,
                    topics.get(topic) or self._topic(topic),
                    small[size] if size < 4096 else _varint(size),
                    payload,
                    small[attempt],
                    small[max_attempts],
                    small[run],
                )
            size = len(body)
            add(_ASSIGNMENTS)
            add(small[size] if size < 4096 else _varint(size))
            add(body)
        return b"".join(parts)

    def _topic(self, name: str) -> bytes:
        """Encode the topic, its time limit, and the key of the payload that follows them."""
        if len(self._topics) >= _TOPICS_KEPT:
            self._topics.clear()
        data = name.encode()
        encoded = self._topics[name] = _TOPIC + _varint(len(data)) + data + self._timeout(name) + _PAYLOAD
        return encoded

    def _timeout(self, topic: str) -> bytes:
        """Encode the time limit of an attempt. Fields may come in any order."""
        timeout = self._time_limits.get(topic, self._time_limits.get(""))
        if timeout is None:
            return b""
        return pb.JobAssignment(timeout=wire_duration(timeout)).SerializeToString()


def original_messages(jobs: Sequence[ClaimedJob]) -> list[pb.StreamJobsResponse]:
    """A message for each job, as workers of the original contract read them."""
    return [pb.StreamJobsResponse(assignment=convert_work.assignment(job)) for job in jobs]
