"""The server's bounds of a new job, checked before the commit.

After the commit a refusal would be too late: the rows are stored, and the job would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pulse.checks import check_payload
from pulse.errors import InvalidArgument
from pulse.handlers.registry import check_topic
from pulse.v1 import pulse_pb2 as pb

# Those of pulse_server/domain/bounds.py: a test gives one table of bad requests to both.
_LONGEST_TEXT = 255
_MOST_ENTRIES = 64
_MOST_METADATA_BYTES = 16 * 1024
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT = datetime(2200, 1, 1, tzinfo=UTC)
_VERSION_OF_FIRES = 5


def check_bounds(request: pb.SubmitJobRequest) -> None:
    """Raise InvalidArgument for a job that the server would refuse."""
    _check_topic(request.topic)
    check_payload(request.payload)
    _check_text("key", request.idempotency_key)
    _check_text("lane", request.lane)
    _check_text("unique.key", request.unique.key)
    _check_metadata(request.metadata)
    _check_start(request)
    _check_id(request.job_id)


def _check_topic(topic: str) -> None:
    if not topic:
        raise InvalidArgument("topic is empty: name the kind of work, such as 'send-email'.")
    check_topic(topic)


def _check_text(name: str, text: str) -> None:
    if len(text) > _LONGEST_TEXT:
        raise InvalidArgument(f"{name} has {len(text)} characters; {_LONGEST_TEXT} are allowed at the most.")
    if "\0" in text:
        raise InvalidArgument(f"{name} contains a NUL character, which cannot be stored.")


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > _MOST_ENTRIES:
        raise InvalidArgument(
            f"metadata has {len(metadata)} entries; {_MOST_ENTRIES} are allowed at the most."
        )
    size = sum(len(text.encode()) for entry in metadata.items() for text in entry)
    if size > _MOST_METADATA_BYTES:
        raise InvalidArgument(f"metadata has {size} bytes; {_MOST_METADATA_BYTES} are allowed at the most.")
    if any("\0" in text for entry in metadata.items() for text in entry):
        raise InvalidArgument("metadata contains a NUL character, which cannot be stored.")


def _check_start(request: pb.SubmitJobRequest) -> None:
    start = request.WhichOneof("start")
    if start == "delay" and request.delay.ToTimedelta() < timedelta(0):
        raise InvalidArgument("delay is negative: time runs forward only.")
    if start == "run_at" and not _FIRST_MOMENT <= request.run_at.ToDatetime(tzinfo=UTC) <= _LAST_MOMENT:
        raise InvalidArgument("run_at must lie between the years 1970 and 2200.")


def _check_id(job_id: str) -> None:
    try:
        version = UUID(job_id).version
    except ValueError:
        raise InvalidArgument(f"job_id {job_id!r:.40} is not a job id. Ids are UUIDs.") from None
    if version == _VERSION_OF_FIRES:
        raise InvalidArgument(
            "job_id is a UUID of version 5, and those belong to the fires of schedules. Take version 7 or 4; "
            "for a job that must be stored once under a name of yours, give a key."
        )
