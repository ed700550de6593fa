"""The first wire contract, as a client that was generated from it knows it."""

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

# message -> (number, name, type); a capitalized type is a message, `*` marks a repeated field.
MESSAGES: dict[str, list[tuple[int, str, str]]] = {
    "SubmitJobRequest": [(1, "topic", "string"), (2, "payload", "bytes"), (3, "priority", "int32")],
    "SubmitJobResponse": [(1, "job_id", "string")],
    "GetJobRequest": [(1, "job_id", "string")],
    "GetJobResponse": [(1, "job", "JobView")],
    "JobView": [(1, "job_id", "string"), (2, "status", "string")],
    "StreamJobsRequest": [(1, "topics", "string*"), (2, "worker_id", "string")],
    "StreamJobsResponse": [(1, "assignment", "JobAssignment")],
    "JobAssignment": [
        (1, "job_id", "string"),
        (2, "topic", "string"),
        (3, "payload", "bytes"),
        (4, "attempt", "int32"),
        (5, "priority", "int32"),
    ],
    "ReportResultRequest": [(1, "job_id", "string"), (2, "success", "bool"), (3, "error", "string")],
    "ReportResultResponse": [],
    "HeartbeatRequest": [(1, "job_id", "string"), (2, "worker_id", "string")],
    "HeartbeatResponse": [(1, "should_stop", "bool")],
    "CreateScheduleRequest": [
        (1, "topic", "string"),
        (2, "payload", "bytes"),
        (3, "at", "Timestamp"),
        (4, "every", "Duration"),
        (5, "cron", "string"),
    ],
    "CreateScheduleResponse": [(1, "schedule_id", "string")],
    "PauseScheduleRequest": [(1, "schedule_id", "string")],
    "PauseScheduleResponse": [],
    "ResumeScheduleRequest": [(1, "schedule_id", "string")],
    "ResumeScheduleResponse": [],
    "DeleteScheduleRequest": [(1, "schedule_id", "string")],
    "DeleteScheduleResponse": [],
    "ListSchedulesRequest": [],
    "ListSchedulesResponse": [(1, "schedules", "ScheduleView*")],
    "ScheduleView": [
        (1, "schedule_id", "string"),
        (2, "topic", "string"),
        (3, "kind", "string"),
        (4, "cron", "string"),
        (5, "every", "Duration"),
        (6, "next_run_at", "Timestamp"),
        (7, "last_run_at", "Timestamp"),
        (8, "paused", "bool"),
    ],
    "ListScheduleJobsRequest": [(1, "schedule_id", "string")],
    "ListScheduleJobsResponse": [(1, "jobs", "JobView*")],
    "ListScheduleFiresRequest": [(1, "schedule_id", "string")],
    "ListScheduleFiresResponse": [(1, "fires", "ScheduleFire*")],
    "ScheduleFire": [(1, "job_id", "string"), (2, "fired_at", "Timestamp")],
    "PauseDispatchRequest": [(1, "reason", "string")],
    "PauseDispatchResponse": [],
    "ResumeDispatchRequest": [],
    "ResumeDispatchResponse": [],
    "GetDispatchStatusRequest": [],
    "GetDispatchStatusResponse": [
        (1, "paused", "bool"),
        (2, "reason", "string"),
        (3, "paused_at", "Timestamp"),
    ],
}
# Fields of which a message has one at the most.
ONEOFS = {("CreateScheduleRequest", name): "spec" for name in ("at", "every", "cron")}
UNARY = [
    "SubmitJob",
    "GetJob",
    "ReportResult",
    "Heartbeat",
    "CreateSchedule",
    "PauseSchedule",
    "ResumeSchedule",
    "DeleteSchedule",
    "ListSchedules",
    "ListScheduleJobs",
    "ListScheduleFires",
    "PauseDispatch",
    "ResumeDispatch",
    "GetDispatchStatus",
]
STREAMING = ["StreamJobs"]


def _contract() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="original.proto", package="pulse.v1", syntax="proto3")
    file.dependency.extend(known.DESCRIPTOR.name for known in (timestamp_pb2, duration_pb2))
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, name, kind in fields:
            field = message.field.add(number=number, name=name)
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            field.type, type_name = type_of(kind)
            if type_name:
                field.type_name = type_name
            if oneof := ONEOFS.get((message_name, name)):
                if not message.oneof_decl:
                    message.oneof_decl.add(name=oneof)
                field.oneof_index = 0
    return file


def type_of(kind: str) -> tuple[int, str]:
    """Return the wire type of a field, and its message type, if any."""
    field = descriptor_pb2.FieldDescriptorProto
    if kind in MESSAGES:
        return field.TYPE_MESSAGE, f".pulse.v1.{kind}"
    if kind in ("Timestamp", "Duration"):
        return field.TYPE_MESSAGE, f".google.protobuf.{kind}"
    return getattr(field, f"TYPE_{kind.upper()}"), ""


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()  # of its own: the names are those of the generated stubs
    for known in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(_contract())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"pulse.v1.{name}"))
        for name in MESSAGES
    }


CLASSES = _classes()


class OriginalClient:
    """A client of the first contract."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def call(self, method: str, **fields: Any) -> Any:
        """Make a unary call. Returns its response, as the first contract defines it."""
        assert method in UNARY
        return await self._multicallable(self._channel.unary_unary, method)(
            CLASSES[f"{method}Request"](**fields), timeout=10
        )

    def stream(self, **fields: Any) -> Any:
        """StreamJobs."""
        make = self._channel.unary_stream
        return self._multicallable(make, "StreamJobs")(CLASSES["StreamJobsRequest"](**fields), timeout=20)

    def _multicallable(self, make: Any, method: str) -> Any:
        return make(
            f"/pulse.v1.PulseService/{method}",
            request_serializer=CLASSES[f"{method}Request"].SerializeToString,
            response_deserializer=CLASSES[f"{method}Response"].FromString,
        )
