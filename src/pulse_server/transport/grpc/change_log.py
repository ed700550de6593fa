"""Logs one event for each requested change: the caller, the request, the reason and the outcome.

It wraps all handlers in one place, so that none can omit it. The frequent calls of producers and workers
(submits, streams, reports, heartbeats, releases, declarations) are not logged one by one: the metrics count
them, and a job keeps its own history. A submit that replaces waiting jobs is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.json_format import Error as NoJson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pulse_server.access.users import Role
from pulse_server.domain.errors import PulseError, Unauthenticated
from pulse_server.domain.jobs import Submitted
from pulse_server.transport.grpc.boundary import SERVICE, Behavior, Failure
from pulse_server.transport.grpc.callers import Callers
from pulse_server.transport.grpc.permissions import may_call

log = logging.getLogger(__name__)

# The frequent calls of producers and workers.
FREQUENT = frozenset(
    {"SubmitJob", "SubmitJobs", "StreamSubmits", "StreamJobs", "Release", "Heartbeat", "Heartbeats"}
    | {"ReportResult", "ReportResults", "StreamReports", "DeclareTopicPolicies", "StoreSteps", "TakeSignal"}
    | {"SubmitWorkflow", "AddToWorkflow"}
)
# The fields of responses that count changes.
_COUNTS = ("canceled", "retried", "prioritized", "deleted")
_IDS = ("job_id", "schedule_id", "workflow_id")
# The first two are no part of the change; metadata and payloads belong to the application.
_LEFT_OUT = {"limit", "page_token", "payload", "metadata"}
_LONGEST_TEXT = 500
_MOST_ENTRIES = 64
# A filter has metadata of MAX_METADATA_BYTES and some names.
_LARGEST_SHOWN = 32 * 1024


def is_change(method: str) -> bool:
    """Whether calls of the method are logged. A new method is a change unless viewers may call it."""
    return method not in FREQUENT and not may_call(Role.VIEWER, f"/{SERVICE}/{method}")


class ChangeLog:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def recorded(self, method: str, behavior: Behavior) -> Behavior:
        """Return the behavior; its calls are logged if the method is a change."""
        if not is_change(method):
            return behavior

        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                answer = await behavior(request, context)
            except asyncio.CancelledError:
                # The caller has disconnected. The change may have been committed.
                self._record(method, request, context, Failure(grpc.StatusCode.CANCELLED, ""))
                raise
            self._record(method, request, context, answer)
            return answer

        return call

    def record_replaced(
        self, answers: Iterable[Submitted | PulseError], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Log the waiting jobs that a submit has replaced. Another user may have submitted them."""
        ids = [answer.job_id for answer in answers if isinstance(answer, Submitted) and answer.is_replaced]
        if ids:
            log.info(
                "jobs_replaced",
                extra={**self._who(context), "ids": ids[:_MOST_ENTRIES], "count": len(ids)},
            )

    def _record(
        self, method: str, request: Any, context: grpc.aio.ServicerContext[Any, Any], answer: Any
    ) -> None:
        facts = {"method": method, **_asked(request), **_outcome(request, answer)}
        log.info("change", extra={**self._who(context), **facts})

    def _who(self, context: grpc.aio.ServicerContext[Any, Any]) -> Mapping[str, str]:
        try:
            caller = self._callers.of(context)
        except Unauthenticated:
            return {"user": "(removed while the call was under way)", "role": "", "address": ""}
        return {"user": caller.user, "role": caller.role.value, "address": caller.address}


def _asked(request: Any) -> Mapping[str, Any]:
    """Return the filter, the reason and the other short fields of the request."""
    if not isinstance(request, Message):
        return {}
    fields = dict(_fields(request))
    facts: dict[str, Any] = {name: fields.pop(name) for name in ("filter", "reason") if name in fields}
    for name in _IDS:
        fields.pop(name, None)
    return {**facts, "asked": fields} if fields else facts


def _outcome(request: Any, answer: Any) -> Mapping[str, Any]:
    """Return the number of changes, the ids and the status of the response."""
    is_refused = isinstance(answer, Failure)
    ids = {
        getattr(message, name): None
        for message in ((request,) if is_refused else (request, answer))
        for name in _IDS
        if getattr(message, name, "")
    }
    facts: dict[str, Any] = {"ids": [text[:_LONGEST_TEXT] for text in ids]} if ids else {}
    if is_refused:
        return {**facts, "count": 0, "outcome": answer.code.name, "refusal": answer.sentence[:_LONGEST_TEXT]}
    counts = [getattr(answer, name) for name in _COUNTS if hasattr(answer, name)]
    return {**facts, "count": sum(counts) if counts else 1, "outcome": grpc.StatusCode.OK.name}


def _fields(request: Message) -> Iterator[tuple[str, Any]]:
    for field, value in request.ListFields():
        if field.name in _LEFT_OUT or field.type == field.TYPE_BYTES:
            continue
        if isinstance(value, Message) and (size := value.ByteSize()) > _LARGEST_SHOWN:
            yield field.name, f"({size} bytes)"  # refused: nothing valid is as large
        else:
            yield field.name, _shortened(_read(value) if isinstance(value, Message) else value)


def _read(message: Message) -> Any:
    try:
        return MessageToDict(message, preserving_proto_field_name=True)
    except (NoJson, ValueError):  # a timestamp or duration out of range, which was refused
        return str(message)


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if isinstance(value, Sequence):
        return [_shortened(entry) for entry in value[:_MOST_ENTRIES]]
    if isinstance(value, dict):
        return {key[:_LONGEST_TEXT]: _shortened(text) for key, text in list(value.items())[:_MOST_ENTRIES]}
    return value
