"""Bounds of the input, and defaults for omitted fields. A check that fails names the field.

Errors are grouped here, too. An error is grouped with those of its kind whose message is the same, but for
values that vary from job to job. An error that names its cause has the group of its cause, as if that had
been raised alone. The SDK writes both (`pulse.error_text`): the first line names the cause, and the text has
it again below a label.

The group is stored with the dead letter, so a change of the rules splits groups: earlier dead letters keep
the old one. docs/figures.md#dead-letters
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import NamedTuple

from pulse_server.base.errors import InvalidArgument

# Every pattern is linear in any text: ambiguous parts are possessive. Errors come from handlers,
# and handlers quote input of their users.

# A class, perhaps with its module. Its digits belong to it: S3Error is not EC2Error.
_KIND = re.compile(r"(?:[A-Za-z_]\w*+\.)*+[A-Z]\w*+(?=:|$)")
# A quote that was cut off counts as well.
_QUOTED = re.compile(r"(?<!\w)[bru]?(?:'[^'\n]*+(?:'|\Z)|\"[^\"\n]*+(?:\"|\Z)|`[^`\n]*+(?:`|\Z))")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TOKEN = re.compile(r"[\w@+.%~:/\\-]++")
_SEGMENT = re.compile(r"[^/\\]++")
_WORD = re.compile(r"\w++")
_DIGITS = re.compile(r"\d++")
_HEX = re.compile(r"(?:0x)?[0-9a-f]{6,}|0x[0-9a-f]++", re.IGNORECASE)
_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")  # as Python names its files
# 1.5, -3e7, 10.0.0.1:5432, a date, a list of numbers: one value each.
_VALUES = re.compile(r"(?<!\w)[-+]?+#(?:[-+.,:;Te]{0,2}+ ?+[-+]?+#)*+Z?+")
_BLANKS = re.compile(r"\s++")

# Letters and digits mixed in a word of this length are a generated id, not a name.
_LONG_WORD = 16
# The beginning identifies an error. The rest is often a document that was received.
_CHARACTERS_READ = 2000
_CHARACTERS_COMPARED = 300

# How the SDK writes a cause. A text that merely quotes one of the two has the group of all its lines.
_CAUSE_NAMED = " [cause: "
_LABEL = re.compile(r"(?:Caused by|While handling|Sub-exception [0-9.]++:) ")
_NAMED_CHARACTERS = 300

WITHOUT_GROUP = "none"
"""How callers refer to dead letters without a group: they are older than the groups."""
LEASE_EXPIRED = "worker lease expired"
"""The recorded error of an attempt whose lease expired."""
TIME_LIMIT_EXCEEDED = "time limit exceeded"
"""The recorded error of an attempt that the server ended at its time limit."""
SNOOZED_TOO_OFTEN = "snoozed too often: what the job waits for does not happen"
"""The recorded error of a job that reached its limit of snoozes."""


def error_group(error: str) -> str:
    """The id of the group that an error belongs to: twelve hexadecimal digits, the same for errors alike."""
    return blake2b(shape(error).encode("utf-8", "replace"), digest_size=6).hexdigest()


def shape(error: str) -> str:
    """The error without its traceback, and with one sign for each value that may vary."""
    message = "\n".join(filter(_tells_what, _cause(error.strip()).splitlines()))[:_CHARACTERS_READ]
    kind = found[0] if (found := _KIND.match(message)) else ""
    text = _QUOTED.sub("''", message[len(kind) :])
    text = _UUID.sub("#", text)
    text = _TOKEN.sub(_plain, text)
    text = _BLANKS.sub(" ", text)
    return (kind + _VALUES.sub("#", text)).strip()[:_CHARACTERS_COMPARED]


def _cause(error: str) -> str:
    """The part of the text about the cause that its first line names; without a cause, the text."""
    first, *lines = error.split("\n")
    found = first.find(_CAUSE_NAMED) if first.endswith("]") else -1
    if found < 0:
        return error
    labeled: dict[str, int] = {}
    for position, line in enumerate(lines):
        if label := _LABEL.match(line):
            labeled.setdefault(line[label.end() :][:_NAMED_CHARACTERS], position)
    while found >= 0:
        # The message itself may contain the marker. The true cause has a labeled section below.
        named = first[found + len(_CAUSE_NAMED) : -1]
        if named in labeled:
            return "\n".join(_section(lines, labeled[named]))
        found = first.find(_CAUSE_NAMED, found + 1)
    return error


def _section(lines: list[str], position: int) -> Iterator[str]:
    """The lines from this label to the next one, without the label."""
    yield _LABEL.sub("", lines[position], count=1)
    yield from takewhile(lambda line: not _LABEL.match(line), lines[position + 1 :])


def _tells_what(line: str) -> bool:
    """Whether a line has the error, not a frame: the frames of a traceback are indented."""
    return bool(line) and not line[0].isspace() and not line.startswith("Traceback (most recent call last)")


def _plain(token: re.Match[str]) -> str:
    text = token[0]
    if "@" in text.strip("@"):
        return "@"
    if "/" in text or "\\" in text:
        return _SEGMENT.sub(_plain_segment, text)
    return _WORD.sub(_plain_word, text)


def _plain_segment(segment: re.Match[str]) -> str:
    """A part of a path. One with a digit is the name of something that was made for the occasion."""
    text = segment[0]
    return "#" if _DIGITS.search(text) or _TEMPORARY.match(text) else text


def _plain_word(word: re.Match[str]) -> str:
    text = word[0]
    if not _DIGITS.search(text):
        return text
    return "#" if len(text) >= _LONG_WORD or _HEX.fullmatch(text) else _DIGITS.sub("#", text)


LEASE_EXPIRED_GROUP = error_group(LEASE_EXPIRED)
TIME_LIMIT_EXCEEDED_GROUP = error_group(TIME_LIMIT_EXCEEDED)
SNOOZED_TOO_OFTEN_GROUP = error_group(SNOOZED_TOO_OFTEN)

MAX_TOPIC_LENGTH = 255
MAX_KEY_LENGTH = 255
MAX_UNIQUE_KEY_LENGTH = 255
MAX_WORKER_ID_LENGTH = 255
MAX_PAYLOAD_BYTES = 1024 * 1024  # a default gRPC client receives 4 MiB, and must be able to read it
MAX_METADATA_ENTRIES = 64
MAX_METADATA_BYTES = 16 * 1024
MAX_ERROR_BYTES = 8 * 1024
MAX_ATTEMPTS = 1000
# Granted by a retry. The count and the delays continue: after 25 attempts, five more take 8 hours.
DEFAULT_RETRY_ATTEMPTS = 5
MAX_JOBS_PER_SUBMIT = 10_000
MAX_RESULTS_PER_REPORT = 10_000
MAX_STEPS_PER_CALL = 10_000
MAX_CLAIMS_PER_HEARTBEAT = 20_000
MAX_TOPICS_PER_WORKER = 1000
MAX_CAPACITY = 10_000
MAX_DELAY = timedelta(days=3650)
# Without a bound a job could snooze forever, for an event that never comes.
MAX_SNOOZES = 1000
LAST_MOMENT = datetime(2200, 1, 1, tzinfo=UTC)  # later than any real schedule
MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 50
DEFAULT_DEAD_LETTER_GROUPS = 100
DEFAULT_FINDINGS = 100
MAX_PREVIEW = 100
DEFAULT_PREVIEW = 5
MAX_BATCH_SIZE = 500  # of one step of an action on many jobs
MAX_SEARCH_LENGTH = 200
MAX_WATCHED = 1000
MAX_EXPLAINED = 200  # jobs in one answer
MAX_AWAITED = 100_000  # jobs that one stream waits for
MAX_AWAITED_PER_MESSAGE = 20_000
MAX_MINUTES = 24 * 60  # of statistics in one answer
DEFAULT_MINUTES = 60
MAX_OFFSET = 100_000  # an offset is walked row by row; page tokens are not

_ERROR_GROUP = re.compile(r"[0-9a-f]{12}")
_ID_PREFIX = re.compile(r"[0-9a-f]{1,32}")
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,254}")


@lru_cache(maxsize=1024)  # an application has few topics, and uses them all the time
def check_topic(topic: str, field: str = "topic") -> str:
    if not topic:
        raise InvalidArgument(field, "is empty: name the kind of work, such as 'send-email'.")
    if len(topic) > MAX_TOPIC_LENGTH:
        raise InvalidArgument(
            field, f"has {len(topic)} characters; {MAX_TOPIC_LENGTH} are allowed at the most."
        )
    if not _TOPIC.fullmatch(topic):
        raise InvalidArgument(
            field,
            f"{topic!r} is not allowed: use letters, digits and . _ - : / and start with a letter or digit.",
        )
    return topic


def check_count(field: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidArgument(field, f"has {count} entries; {most} are allowed at the most.")


def check_payload(payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidArgument(
            "payload",
            f"has {len(payload)} bytes; {MAX_PAYLOAD_BYTES} are allowed at the most. "
            "Store large data elsewhere and send a reference to it.",
        )
    return payload


def result_is_too_large(size: int, most: int) -> str:
    """The error of a job whose result cannot be stored."""
    return (
        f"The handler returned a result of {size} bytes; {most} are allowed at the most. Store large data "
        "elsewhere and return a reference to it, or raise PULSE_MAX_RESULT of pulsed."
    )


def check_key(key: str) -> str | None:
    if not key:
        return None
    return check_text(key, "idempotency_key", MAX_KEY_LENGTH)


def check_lane(lane: str) -> str | None:
    return check_text(lane, "lane", MAX_KEY_LENGTH) if lane else None


def check_name(name: str) -> str | None:
    return check_text(name, "name", MAX_KEY_LENGTH) if name else None


def check_application(application: str) -> str:
    if not application:
        raise InvalidArgument("application", "is empty: give the name of the program, such as shop.app.")
    return check_text(application, "application", MAX_KEY_LENGTH)


def check_preview_count(count: int) -> int:
    if not 0 <= count <= MAX_PREVIEW:
        raise InvalidArgument("count", f"is {count}: it must be from 0 to {MAX_PREVIEW}.")
    return count or DEFAULT_PREVIEW


def check_worker_id(worker_id: str) -> str:
    if not worker_id:
        raise InvalidArgument("worker_id", "is empty: give each worker process a name of its own.")
    return check_text(worker_id, "worker_id", MAX_WORKER_ID_LENGTH)


def check_run_id(run_id: str) -> str:
    return check_text(run_id, "run_id", MAX_WORKER_ID_LENGTH)


def check_metadata(metadata: Mapping[str, str]) -> Mapping[str, str] | None:
    if not metadata:
        return None
    check_count("metadata", len(metadata), MAX_METADATA_ENTRIES)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > MAX_METADATA_BYTES:
        raise InvalidArgument("metadata", f"has {size} bytes; {MAX_METADATA_BYTES} are allowed at the most.")
    if any("\0" in key or "\0" in value for key, value in metadata.items()):
        raise InvalidArgument("metadata", "contains a NUL character, which cannot be stored.")
    return metadata


def check_max_attempts(max_attempts: int, field: str = "max_attempts") -> int:
    if not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise InvalidArgument(field, f"is {max_attempts}: it must be from 1 to {MAX_ATTEMPTS}.")
    return max_attempts


def check_delay(delay: timedelta, field: str = "delay") -> timedelta:
    if delay < timedelta(0):
        raise InvalidArgument(field, "is negative: time runs forward only.")
    if delay > MAX_DELAY:
        raise InvalidArgument(field, f"is longer than {MAX_DELAY.days} days.")
    return delay


def check_positive(span: timedelta, field: str) -> timedelta:
    if span <= timedelta(0):
        raise InvalidArgument(field, "is missing or not above zero: give a duration such as 2 s.")
    return check_delay(span, field)


def check_run_at(run_at: datetime, field: str = "run_at") -> datetime:
    if not datetime(1970, 1, 1, tzinfo=UTC) <= run_at <= LAST_MOMENT:
        raise InvalidArgument(field, "must lie between the years 1970 and 2200.")
    return run_at


def check_capacity(capacity: int, field: str = "capacity") -> int:
    if not 0 <= capacity <= MAX_CAPACITY:
        raise InvalidArgument(field, f"is {capacity}: it must be from 0 to {MAX_CAPACITY}.")
    return capacity


def check_run_seconds(seconds: float) -> float:
    if not 0 <= seconds < math.inf:
        raise InvalidArgument("run_seconds", f"is {seconds}: it must be a number of seconds, not below 0.")
    return seconds


def check_page_size(limit: int, default: int, field: str = "limit") -> int:
    if limit < 0:
        raise InvalidArgument(field, f"is {limit}: it must not be negative.")
    return min(limit or default, MAX_PAGE_SIZE)


def check_batch_size(limit: int) -> int:
    if not 0 <= limit <= MAX_BATCH_SIZE:
        raise InvalidArgument("limit", f"is {limit}: it must be from 0 to {MAX_BATCH_SIZE}.")
    return limit or MAX_BATCH_SIZE


def check_minutes(minutes: int) -> int:
    if not 0 <= minutes <= MAX_MINUTES:
        raise InvalidArgument("minutes", f"is {minutes}: it must be from 0 to {MAX_MINUTES}, which is a day.")
    return minutes or DEFAULT_MINUTES


def check_search(text: str, field: str = "error_contains") -> str | None:
    return check_text(text, field, MAX_SEARCH_LENGTH) if text else None


def check_error_group(group: str) -> str | None:
    """The group as stored: empty selects dead letters without one. None: the request has none."""
    if not group:
        return None
    if group == WITHOUT_GROUP:
        return ""
    if not _ERROR_GROUP.fullmatch(group):
        raise InvalidArgument(
            "error_group",
            f"{group[:40]!r} is not the id of a group of dead letters, such as '3201d5cec167', "
            f"or {WITHOUT_GROUP!r} for dead letters without one.",
        )
    return group


def check_id_prefix(prefix: str) -> str:
    """The hexadecimal digits that the prefix begins with, without dashes."""
    digits = prefix.strip().lower().replace("-", "")
    if not _ID_PREFIX.fullmatch(digits):
        raise InvalidArgument("prefix", f"{prefix[:40]!r} is not the beginning of a job id.")
    return digits


def check_offset(offset: int) -> int:
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidArgument(
            "offset", f"is {offset}: it must be from 0 to {MAX_OFFSET}; use page_token to go further."
        )
    return offset


def clean_error(error: str) -> str:
    """The error text as it can be stored: without NUL, and cut at 8 KiB."""
    error = error.replace("\0", "")
    if len(error) * 4 <= MAX_ERROR_BYTES:
        return error
    data = error.encode()
    return error if len(data) <= MAX_ERROR_BYTES else data[:MAX_ERROR_BYTES].decode(errors="ignore")


def check_text(text: str, field: str, longest: int) -> str:
    if len(text) > longest:
        raise InvalidArgument(field, f"has {len(text)} characters; {longest} are allowed at the most.")
    if "\0" in text:
        raise InvalidArgument(field, "contains a NUL character, which cannot be stored.")
    return text


# The upper bounds of the settings. One answer carries all steps of a job, and a default client
# takes 4 MiB.
MOST_STEPS = 10_000
MOST_STEP_BYTES = 2 * 1024 * 1024
# Steps that took a signal hold its value. These bytes come on top.
MOST_SIGNAL_BYTES = 1024 * 1024


class StepBounds(NamedTuple):
    """How many steps a job may have, and how many bytes their names and values. Signals count apart."""

    steps: int
    bytes: int

    @property
    def signal_bytes(self) -> int:
        """How many bytes the names and values of its signals may have. There may be as many as steps."""
        return min(self.bytes, MOST_SIGNAL_BYTES)

    @property
    def of_programs(self) -> StepBounds:
        """The bounds for signals of producers and workers: a tenth is left to operators."""
        return StepBounds(self.steps - self.steps // 10, self.signal_bytes - self.signal_bytes // 10)


# One statement stores them all: no operator may allow more.
MOST_WORKFLOW_JOBS = 100_000
