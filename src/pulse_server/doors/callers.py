"""The caller of an RPC: its user, role and address, what it may call, and the log of what it changed.

A method that is not in the table of roles is denied to all of them.

Worker ids belong to the user that calls. On a server with users `locked_by`, which fences a job, is
user:name. Another user that sends the same name is another worker: it can neither report, extend or release
jobs of the first nor replace its stream. This needs no lookup. docs/figures.md#worker-ids

The change log has one event for each requested change: the caller, the request, the reason and the outcome.
It wraps all handlers in one place, so that none can omit it, and sets the action that the audit records. The
frequent calls of producers and workers (submits, streams, reports, heartbeats, releases) are not logged: the
metrics count them, and a job keeps its own history. A submit that replaces waiting jobs is logged. The audit
counts the jobs that operators submit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.json_format import Error as NoJson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import OPERATORS, WRONG, Role
from pulse_server.base import bounds
from pulse_server.base.bounds import clean_error
from pulse_server.base.errors import InvalidArgument, Unauthenticated
from pulse_server.base.ids import new_id, parse_id
from pulse_server.base.metrics import Metrics
from pulse_server.database.audit import MOST_IDS, Action, CountedCalls, under_way
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.boundary import SERVICE, Behavior, Failure, status_of

if TYPE_CHECKING:
    from pulse_server.access.service import Authenticator

# Set by AuthenticationInterceptor in the task that serves the call. None: a server without users.
_user: ContextVar[str | None] = ContextVar("pulse_calling_user", default=None)
_SEPARATOR = ":"  # names of users cannot contain it, as in HTTP Basic

Method = Callable[[Any, Any, Any], Awaitable[Any]]


def set_calling_user(user: str) -> None:
    """Set the user that this task, and the tasks it starts, serve."""
    _user.set(user)


def calling_user() -> str | None:
    """Return the calling user; None on a server without users."""
    return _user.get()


def own_worker_id(worker_id: str) -> str:
    """Return the worker id as it is stored: with the calling user, if there are users."""
    user = _user.get()
    if user is None or not worker_id:
        return worker_id  # the handler refuses it
    own = f"{user}{_SEPARATOR}{worker_id}"
    if len(own) > bounds.MAX_WORKER_ID_LENGTH:
        raise InvalidArgument(
            "worker_id",
            f"is longer than {bounds.MAX_WORKER_ID_LENGTH} characters together with the name of its user "
            f"({len(own)}). Give the worker a shorter one.",
        )
    return own


def is_own(stored_worker_id: str) -> bool:
    """Whether the stored worker id belongs to the calling user."""
    user = _user.get()
    return user is None or stored_worker_id.startswith(f"{user}{_SEPARATOR}")


def binds_worker_id(behavior: Method) -> Method:
    """Replace the worker id of the request by the stored form before the method runs."""

    @wraps(behavior)
    async def call(self: Any, request: Any, context: Any) -> Any:
        if _user.get() is not None:
            request.worker_id = own_worker_id(request.worker_id)
        return await behavior(self, request, context)

    call.binds_worker_id = True  # type: ignore[attr-defined]
    return call


VISITOR = "pulse-visitor"
"""The metadata in which a dashboard sends the address of its visitor."""


@dataclass(frozen=True, slots=True)
class Caller:
    user: str
    """Empty on a server without users."""
    role: Role
    address: str


class Callers:
    """Without an authenticator the server is open: callers have no user and may call every method."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator

    @property
    def role(self) -> Role | None:
        """The role of the caller that this task serves; None on a server without users."""
        name = calling_user()
        return None if name is None or self._authenticator is None else self._authenticator.role_of(name)

    def of(self, context: grpc.aio.ServicerContext[Any, Any]) -> Caller:
        """Return the caller, which the interceptor has authenticated.

        Raises Unauthenticated if the user was removed or its password changed since then.
        """
        metadata = dict(context.invocation_metadata() or ())
        address = caller_address(context.peer(), metadata)
        if self._authenticator is None:
            return Caller("", Role.ADMIN, address)
        user = self._authenticator.recognize(str(metadata.get("authorization", "")))
        if user is None:
            raise Unauthenticated(WRONG)
        return Caller(user.name, user.role, address)


def caller_address(peer: str, metadata: Mapping[str, Any]) -> str:
    """Return the address of the caller. A dashboard also sends the address of its visitor.

    It calls as the visitor, not as a user of its own. So any caller could send one, and both are returned.
    """
    visitor = metadata.get(VISITOR, "")
    try:
        return f"{ip_address(visitor)} via {peer_address(peer)}" if visitor else peer_address(peer)
    except ValueError:
        return peer_address(peer)


# Orchestrators check the health of the server without a user. The response contains nothing else.
PUBLIC = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"})

# An admin may call every method. Handlers submit further jobs, and applications declare their schedules when
# they start: workers and producers may do both. Operators submit by hand.
_TABLE = """
                      operator  producer  worker  viewer

SubmitJob             yes       yes       yes     -
SubmitJobs            yes       yes       yes     -
StreamSubmits         yes       yes       yes     -
GetJob                yes       yes       yes     yes
AwaitJobs             yes       yes       yes     yes
ListJobs              yes       -         -       yes
CancelJob             yes       yes       -       -
RetryJob              yes       -         -       -
PrioritizeJob         yes       -         -       -
DeleteJob             yes       -         -       -
WhoAmI                yes       yes       yes     yes

FindJobs              yes       yes       -       yes
CountJobs             yes       -         -       yes
CancelJobs            yes       -         -       -
RetryJobs             yes       -         -       -
PrioritizeJobs        yes       -         -       -
DeleteJobs            yes       -         -       -
UndoAction            yes       -         -       -
ExportJobs            yes       -         -       yes
WatchJobs             yes       -         -       yes
ListTopics            yes       -         -       yes
ListWorkers           yes       -         -       yes
ListServers           yes       -         -       yes
ListDeadLetterGroups  yes       -         -       yes
GetStatistics         yes       -         -       yes
SearchJobs            yes       -         -       yes
Explain               yes       -         -       yes
ListFindings          yes       -         -       yes

StreamJobs            -         -         yes     -
ReportResult          -         -         yes     -
ReportResults         -         -         yes     -
StreamReports         -         -         yes     -
Heartbeat             -         -         yes     -
Heartbeats            -         -         yes     -
Release               -         -         yes     -

CreateSchedule        yes       yes       yes     -
DeclareSchedules      yes       yes       yes     -
GetSchedule           yes       yes       yes     yes
ListSchedules         yes       yes       -       yes
PreviewSchedule       yes       yes       -       yes
ListScheduleJobs      yes       -         -       yes
ListScheduleFires     yes       -         -       yes
UpdateSchedule        yes       -         -       -
PauseSchedule         yes       -         -       -
ResumeSchedule        yes       -         -       -
FireSchedule          yes       -         -       -
DeleteSchedule        yes       -         -       -
GetSchedulerStatus    yes       -         -       yes

PauseDispatch         yes       -         -       -
ResumeDispatch        yes       -         -       -
GetDispatchStatus     yes       -         -       yes
SetWorkerState        yes       -         -       -

SetTopic              yes       -         -       -
DeclareTopics         -         -         yes     -
ListTopicSettings     yes       -         -       yes

ListLimits            yes       -         -       yes
ListLanes             yes       -         -       yes
HoldTopic             yes       -         yes     -
SetLane               yes       -         -       -

StoreSteps            -         -         yes     -
TakeSignal            -         -         yes     -
ListSteps             yes       -         yes     yes
SignalJob             yes       yes       yes     -

SubmitWorkflow        yes       yes       yes     -
AddToWorkflow         -         -         yes     -
GetWorkflow           yes       yes       yes     yes
ListWorkflows         yes       -         -       yes
ListWorkflowJobs      yes       yes       yes     yes
CancelWorkflow        yes       yes       -       -
RetryWorkflow         yes       -         -       -

ListAudit             yes       -         -       yes
"""


def _rows() -> Iterator[tuple[str, frozenset[Role]]]:
    header, *lines = (line.split() for line in _TABLE.splitlines() if line)
    columns = [Role(name) for name in header]
    for method, *marks in lines:
        if len(marks) != len(columns) or not set(marks) <= {"yes", "-"}:
            raise ValueError(f"the row of {method} in the table of permissions is not complete")
        allowed = {role for role, mark in zip(columns, marks, strict=True) if mark == "yes"}
        yield f"/{SERVICE}/{method}", frozenset({Role.ADMIN} | allowed)


ROLES_THAT_MAY: dict[str, frozenset[Role]] = {
    **dict(_rows()),
    # Returns the contract, which is not secret, but only to users.
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": frozenset(Role),
}


def may_call(role: Role, method: str) -> bool:
    """Whether a user of this role may call the method, given as /package.Service/Method."""
    return role in ROLES_THAT_MAY.get(method, ())


# ---------------------------------------------------------------- convert audit
# Requests as actions: their short fields, without payloads, for the change log and the audit.

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


# ---------------------------------------------------------------- change log

log = logging.getLogger(__name__)

# The frequent calls of producers and workers.
FREQUENT = frozenset(
    {"SubmitJob", "SubmitJobs", "StreamSubmits", "StreamJobs", "Release", "Heartbeat", "Heartbeats"}
    | {"ReportResult", "ReportResults", "StreamReports", "StoreSteps", "TakeSignal"}
    | {"SubmitWorkflow", "AddToWorkflow"}
)
# Calls of every worker that starts. They are logged if they change something.
_DECLARATIONS = frozenset({"CreateSchedule", "DeclareSchedules", "DeclareTopics"})
# Applications call these as often as others submit jobs. The audit has them only of operators.
_OF_APPLICATIONS = frozenset({"SignalJob", "HoldTopic"})
# The fields of responses that count changes.
_COUNTS = ("canceled", "retried", "prioritized", "deleted", "undone")
_Context = grpc.aio.ServicerContext[Any, Any]


def is_change(method: str) -> bool:
    """Whether calls of the method are logged. A new method is a change unless viewers may call it."""
    return method not in FREQUENT and not may_call(Role.VIEWER, f"/{SERVICE}/{method}")


class ChangeLog:
    def __init__(
        self, callers: Callers, counted: CountedCalls | None = None, metrics: Metrics | None = None
    ) -> None:
        """Without `counted`, the audit gets no refused calls and no submits."""
        self._callers = callers
        self._counted = counted
        self._changes = (metrics or Metrics()).changes

    def recorded(self, method: str, behavior: Behavior) -> Behavior:
        """Return the behavior; its calls are logged if the method is a change."""
        if not is_change(method):
            return behavior

        async def call(request: Any, context: _Context) -> Any:
            if getattr(request, "dry_run", False):
                return await behavior(request, context)
            who = self._who(context)
            try:
                action = action_of(method, request, who)
            except InvalidArgument as error:
                refused = Failure(status_of(error), str(error))
                self._record(Action("", method, **who), request, refused)
                return refused
            try:
                with under_way(action if _is_audited(action) else None):
                    answer = await behavior(request, context)
            except asyncio.CancelledError:
                # The caller has disconnected. The change may have been committed.
                self._record(action, request, Failure(grpc.StatusCode.CANCELLED, ""))
                raise
            if hasattr(answer, "action_id"):
                answer.action_id = action.id
            self._record(action, request, answer)
            return answer

        return call

    def record_submitted(self, topics: Iterable[str], inserted: Callable[[], int], context: _Context) -> None:
        """Count the `inserted` jobs for the audit if an operator submits them, by hand as a rule.

        Not in the transaction of the submit: concurrent submits share a statement, and an application may
        run as an admin. Producers and workers pay for one look at the role.
        """
        if self._counted is None or self._callers.role not in OPERATORS:
            return
        if count := inserted():
            action = Action(new_id(), "SubmitJob", **self._who(context), topics=tuple(topics)[:MOST_IDS])
            self._counted.record(action, grpc.StatusCode.OK.name, count=count)

    def record_replaced(self, ids: Sequence[str], context: _Context) -> None:
        """Log the waiting jobs that a submit has replaced. Another user may have submitted them."""
        if ids:
            log.info("jobs_replaced", extra={**self._who(context), "ids": ids[:MOST_IDS], "count": len(ids)})

    def _record(self, action: Action, request: Any, answer: Any) -> None:
        facts = _facts(action, request, answer)
        if isinstance(answer, Failure):
            if self._counted is not None and answer.code is grpc.StatusCode.PERMISSION_DENIED:
                self._counted.record(action, answer.code.name, answer.sentence)
        elif action.method in _DECLARATIONS and not action.count:
            return
        elif getattr(request, "page_token", ""):
            if not answer.next_page_token:
                log.info("change_ended", extra=facts)  # with the count of all batches
            return
        elif getattr(request, "action_id", "") and action.count > facts["count"]:
            log.info("change", extra=facts)  # another job of an action that was counted
            return
        self._changes.add(action.method, facts["outcome"])
        log.info("change", extra=facts)

    def _who(self, context: _Context) -> Mapping[str, Any]:
        try:
            caller = self._callers.of(context)
        except Unauthenticated:
            return {"user": "(removed while the call was under way)", "role": "", "address": ""}
        return {"user": caller.user, "role": caller.role.value, "address": caller.address}


def _is_audited(action: Action) -> bool:
    return action.method not in _OF_APPLICATIONS or (action.user != "" and action.role in OPERATORS)


def _facts(action: Action, request: Any, answer: Any) -> dict[str, Any]:
    asked = dict(asked_of(request))
    facts: dict[str, Any] = {name: asked.pop(name) for name in ("filter",) if name in asked}
    if asked:
        facts["asked"] = asked
    if reason := getattr(request, "reason", ""):
        facts["reason"] = shortened(reason)
    return {
        "action_id": action.id,
        "user": action.user,
        "role": action.role,
        "address": action.address,
        "method": action.method,
        **facts,
        **_outcome(action, request, answer),
    }


def _outcome(action: Action, request: Any, answer: Any) -> Mapping[str, Any]:
    """Return the number of changes, the ids and the status of the response."""
    is_refused = isinstance(answer, Failure)
    ids = named_ids(request) if is_refused else named_ids(request, answer)
    facts: dict[str, Any] = {"ids": list(ids)} if ids else {}
    if is_refused:
        return {**facts, "count": 0, "outcome": answer.code.name, "refusal": shortened(answer.sentence)}
    counts = [getattr(answer, name) for name in _COUNTS if hasattr(answer, name)]
    # A bulk action has the changes of its earlier batches, which the audit has counted.
    return {
        **facts,
        "count": max(action.count, sum(counts)) if counts else 1,
        "outcome": grpc.StatusCode.OK.name,
    }


_METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["PulseService"].methods]


class AccessRpcs:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def who_am_i(
        self, _request: pb.WhoAmIRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.WhoAmIResponse:
        caller = self._callers.of(context)
        return pb.WhoAmIResponse(
            user=caller.user,
            role=caller.role.value,
            methods=[method for method in _METHODS if may_call(caller.role, f"/{SERVICE}/{method}")],
        )
