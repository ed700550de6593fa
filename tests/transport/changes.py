"""A request that changes something, for each RPC that can, and what it needs to be there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pulse.v1 import pulse_pb2 as pb
from tests.transport.authorized import caller
from tests.transport.pulse_server_under_test import ServerUnderTest

TOPIC = "mail"
SECRET = b"secret-4711"


async def job(server: ServerUnderTest, **options: Any) -> str:
    admin = caller(server.channel, "admin")
    submitted = await admin.SubmitJob(pb.SubmitJobRequest(topic=TOPIC, payload=SECRET, **options))
    return str(submitted.job_id)


async def canceled(server: ServerUnderTest) -> str:
    job_id = await job(server)
    await caller(server.channel, "admin").CancelJob(pb.CancelJobRequest(job_id=job_id))
    return job_id


async def schedule(server: ServerUnderTest) -> str:
    made = await caller(server.channel, "admin").CreateSchedule(
        pb.CreateScheduleRequest(topic=TOPIC, payload=SECRET, cron="@daily", name=str(uuid4()))
    )
    return str(made.schedule_id)


async def workflow(server: ServerUnderTest, *, is_canceled: bool = False) -> str:
    admin = caller(server.channel, "admin")
    workflow_id = str(uuid4())
    step = pb.WorkflowJob(name="one", job=pb.SubmitJobRequest(topic=TOPIC, payload=SECRET))
    call = admin.SubmitWorkflow()
    await call.write(pb.SubmitWorkflowRequest(workflow_id=workflow_id, name="w", jobs=[step]))
    await call.done_writing()
    await call
    if is_canceled:
        await admin.CancelWorkflow(pb.CancelWorkflowRequest(workflow_id=workflow_id))
    return workflow_id


async def limits(server: ServerUnderTest) -> None:
    """Give the topic limits and lanes."""
    await caller(server.channel, "admin").SetTopic(
        pb.SetTopicRequest(topic="laned", entries=pb.TopicEntries(running=5, per_lane=2))
    )


Request = Callable[[ServerUnderTest], Awaitable[Any]]


async def _fixed(request: Any) -> Any:
    return request


def which(status: str = "") -> pb.JobFilter:
    return pb.JobFilter(topic=TOPIC, status=status)


async def _after(furnish: Awaitable[Any], request: Any) -> Any:
    await furnish
    return request


async def paused(server: ServerUnderTest, topic: str) -> pb.ResumeDispatchRequest:
    await caller(server.channel, "admin").PauseDispatch(pb.PauseDispatchRequest(topic=topic))
    return pb.ResumeDispatchRequest(topic=topic)


async def quieted(server: ServerUnderTest) -> pb.SetWorkerStateRequest:
    """Let a worker be quiet, and leave. Its state stays."""
    stream = caller(server.channel, "worker").StreamJobs(
        pb.StreamJobsRequest(topics=[TOPIC], worker_id="w1", capacity=1, run_id=str(uuid4()))
    )
    await stream.read()
    request = pb.SetWorkerStateRequest(worker_id="worker:w1", state="quiet")
    await caller(server.channel, "admin").SetWorkerState(request)
    stream.cancel()
    return pb.SetWorkerStateRequest(worker_id="worker:w1", state="running")


async def declared_name(server: ServerUnderTest) -> pb.DeclareSchedulesRequest:
    name = str(uuid4())
    await caller(server.channel, "admin").CreateSchedule(
        pb.CreateScheduleRequest(topic=TOPIC, cron="@daily", name=name)
    )
    return pb.DeclareSchedulesRequest(application="shop", names=[name])


async def _undo(server: ServerUnderTest) -> pb.UndoActionRequest:
    action_id = str(uuid4())
    await job(server)
    await caller(server.channel, "admin").CancelJobs(
        pb.CancelJobsRequest(filter=which(), action_id=action_id)
    )
    return pb.UndoActionRequest(action_id=action_id)


CHANGES: dict[str, Request] = {
    "CancelJob": lambda s: _id(pb.CancelJobRequest, job(s)),
    "RetryJob": lambda s: _id(pb.RetryJobRequest, canceled(s)),
    "PrioritizeJob": lambda s: _id(pb.PrioritizeJobRequest, job(s), priority=7),
    "DeleteJob": lambda s: _id(pb.DeleteJobRequest, canceled(s)),
    "CancelJobs": lambda s: _after(job(s), pb.CancelJobsRequest(filter=which())),
    "RetryJobs": lambda s: _after(canceled(s), pb.RetryJobsRequest(filter=which("CANCELED"))),
    "PrioritizeJobs": lambda s: _after(job(s), pb.PrioritizeJobsRequest(filter=which(), priority=3)),
    "DeleteJobs": lambda s: _after(canceled(s), pb.DeleteJobsRequest(filter=which("CANCELED"))),
    "UndoAction": lambda s: _undo(s),
    "CreateSchedule": lambda _: _fixed(pb.CreateScheduleRequest(topic=TOPIC, payload=SECRET, cron="@daily")),
    "DeclareSchedules": declared_name,
    "UpdateSchedule": lambda s: _schedule(pb.UpdateScheduleRequest, s, cron="@hourly"),
    "PauseSchedule": lambda s: _schedule(pb.PauseScheduleRequest, s),
    "ResumeSchedule": lambda s: _paused_schedule(s),
    "FireSchedule": lambda s: _schedule(pb.FireScheduleRequest, s),
    "DeleteSchedule": lambda s: _schedule(pb.DeleteScheduleRequest, s),
    "PauseDispatch": lambda _: _fixed(pb.PauseDispatchRequest(topic=TOPIC)),
    "ResumeDispatch": lambda s: paused(s, TOPIC),
    "SetWorkerState": lambda s: quieted(s),
    "SetTopic": lambda _: _fixed(
        pb.SetTopicRequest(topic=TOPIC, entries=pb.TopicEntries(max_attempts=4, running=3))
    ),
    "DeclareTopics": lambda _: _fixed(
        pb.DeclareTopicsRequest(
            worker_id="w",
            topics=[
                pb.DeclaredTopic(topic=f"t{n}", entries=pb.TopicEntries(max_attempts=4, running=3))
                for n in range(2)
            ],
        )
    ),
    "HoldTopic": lambda s: _after(limits(s), _held()),
    "SetLane": lambda s: _after(limits(s), pb.SetLaneRequest(topic="laned", lane="a", weight=5, limit=1)),
    "SignalJob": lambda s: _id(
        pb.SignalJobRequest, job(s), name="paid", value=SECRET, signal_id=str(uuid4())
    ),
    "CancelWorkflow": lambda s: _workflow(pb.CancelWorkflowRequest, workflow(s)),
    "RetryWorkflow": lambda s: _workflow(pb.RetryWorkflowRequest, workflow(s, is_canceled=True)),
}


def _held() -> pb.HoldTopicRequest:
    request = pb.HoldTopicRequest(topic="laned")
    request.duration.FromTimedelta(timedelta(minutes=5))
    return request


async def _id(kind: Callable[..., Any], made: Awaitable[str], **fields: Any) -> Any:
    return kind(job_id=await made, **fields)


async def _workflow(kind: Callable[..., Any], made: Awaitable[str]) -> Any:
    return kind(workflow_id=await made)


async def _schedule(kind: Callable[..., Any], server: ServerUnderTest, **fields: Any) -> Any:
    return kind(schedule_id=await schedule(server), **fields)


async def _paused_schedule(server: ServerUnderTest) -> pb.ResumeScheduleRequest:
    schedule_id = await schedule(server)
    await caller(server.channel, "admin").PauseSchedule(pb.PauseScheduleRequest(schedule_id=schedule_id))
    return pb.ResumeScheduleRequest(schedule_id=schedule_id)
