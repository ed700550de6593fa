"""Bounds of the input, and defaults for omitted fields. A check that fails names the field.

Everything is checked on entry, before anything happens. In a batch each job is judged alone. The sender
can do nothing about an error text or a reason that is too long: these are cut, and a page that is too
large is made smaller. docs/figures.md#checks-of-the-input
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from pulse_server.domain.error_groups import WITHOUT_GROUP
from pulse_server.domain.errors import InvalidArgument

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
