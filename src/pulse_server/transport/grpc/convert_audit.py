"""Requests as actions: their short fields, without payloads, for the change log and the audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.json_format import Error as NoJson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pulse_server.domain.actions import MOST_IDS, Action
from pulse_server.domain.bounds import clean_error
from pulse_server.domain.ids import new_id, parse_id

# The fields of requests and responses that name what changes.
IDS = ("job_id", "schedule_id", "workflow_id")
# The first three are no part of the change; metadata and payloads belong to the application.
_LEFT_OUT = {"limit", "page_token", "action_id", "undo_id", "payload", "metadata", *IDS, "reason"}
_LONGEST_TEXT = 500
# A filter has metadata of MAX_METADATA_BYTES and some names.
_LARGEST_SHOWN = 32 * 1024


def action_of(method: str, request: Any, who: Mapping[str, Any]) -> Action:
    """Return the request as an action. Raises InvalidArgument if its action_id is not a UUID.

    `who` has user, role and address.
    """
    # The action_id of an undo names the action to undo.
    given = getattr(request, "undo_id", getattr(request, "action_id", ""))
    return Action(
        parse_id(given, "action_id") if given else new_id(),
        method,
        **who,
        reason=clean_error(getattr(request, "reason", ""))[:_LONGEST_TEXT],
        topics=_topics(request),
        ids=named_ids(request),
        asked=asked_of(request),
    )


def asked_of(request: Any) -> Mapping[str, Any]:
    """Return the filter and the other short fields of the request."""
    return dict(_fields(request)) if isinstance(request, Message) else {}


def named_ids(*messages: Any) -> tuple[str, ...]:
    """Return the ids in these messages, each once."""
    ids = {shortened(getattr(message, name, "")): None for message in messages for name in IDS}
    return tuple(each for each in ids if each)


def shortened(value: Any) -> Any:
    """Return the value with its texts and lists cut, and without NUL, which Postgres does not store."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT].replace("\0", "")
    if isinstance(value, Sequence):
        return [shortened(entry) for entry in value[:MOST_IDS]]
    if isinstance(value, dict):
        return {shortened(key): shortened(text) for key, text in list(value.items())[:MOST_IDS]}
    return value


def _topics(request: Any) -> tuple[str, ...]:
    """Return the topics that the request names, for itself or as a filter."""
    wanted = [getattr(part, "topic", "") for part in (request, getattr(request, "filter", None))]
    wanted += getattr(getattr(request, "filter", None), "topics", ())
    wanted += [each.topic for each in getattr(request, "topics", ()) if not isinstance(each, str)]
    return tuple(dict.fromkeys(shortened(topic) for topic in wanted if topic))


def _fields(request: Message) -> Iterator[tuple[str, Any]]:
    # The action_id of an undo is what it undoes.
    left_out = _LEFT_OUT - {"action_id"} if hasattr(request, "undo_id") else _LEFT_OUT
    for field, value in request.ListFields():
        if field.name in left_out or field.type == field.TYPE_BYTES:
            continue
        if field.message_type is not None and not isinstance(value, Message):
            yield field.name, f"({len(value)} entries)"
        elif isinstance(value, Message) and (size := value.ByteSize()) > _LARGEST_SHOWN:
            yield field.name, f"({size} bytes)"  # refused: nothing valid is as large
        else:
            yield field.name, shortened(_read(value) if isinstance(value, Message) else value)


def _read(message: Message) -> Any:
    """Return the fields of the message; of metadata, which belongs to the application, the names."""
    names = sorted(getattr(message, "metadata", ()))
    if names:
        whole, message = message, type(message)()
        message.CopyFrom(whole)
        message.ClearField("metadata")
    try:
        fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    except (NoJson, ValueError):  # a timestamp or duration out of range, which was refused
        return str(message)
    return fields | {"metadata": names} if names else fields
