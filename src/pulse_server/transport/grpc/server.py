"""Puts the handlers on a port."""

from __future__ import annotations

import grpc

from pulse_server import tuning
from pulse_server.transport.grpc.boundary import handlers
from pulse_server.transport.grpc.consumer import Consumer
from pulse_server.transport.grpc.operator import Operator
from pulse_server.transport.grpc.planner import Planner
from pulse_server.transport.grpc.producer import Producer

_OPTIONS = (
    # Two servers on one port would split the callers between them unnoticed; the second must fail instead.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", tuning.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", tuning.MAX_MESSAGE_BYTES),
    # Workers ping to notice a dead server; a ping every ten seconds is welcome.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # And the server notices a worker whose host vanished.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


class PortInUse(Exception):
    """Its text says which address could not be had."""


def grpc_server(
    producer: Producer, consumer: Consumer, operator: Operator, planner: Planner
) -> grpc.aio.Server:
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers(
        (
            handlers(
                {
                    "SubmitJob": producer.submit_job,
                    "SubmitJobs": producer.submit_jobs,
                    "GetJob": operator.get_job,
                    "ListJobs": operator.list_jobs,
                    "CancelJob": operator.cancel_job,
                    "RetryJob": operator.retry_job,
                    "StreamJobs": consumer.stream_jobs,
                    "ReportResult": consumer.report_result,
                    "ReportResults": consumer.report_results,
                    "Heartbeat": consumer.heartbeat,
                    "Heartbeats": consumer.heartbeats,
                    "Release": consumer.release,
                    "CreateSchedule": planner.create_schedule,
                    "PauseSchedule": planner.pause_schedule,
                    "ResumeSchedule": planner.resume_schedule,
                    "DeleteSchedule": planner.delete_schedule,
                    "ListSchedules": planner.list_schedules,
                    "ListScheduleJobs": planner.list_schedule_jobs,
                    "ListScheduleFires": planner.list_schedule_fires,
                    "GetSchedule": planner.get_schedule,
                    "UpdateSchedule": planner.update_schedule,
                    "FireSchedule": planner.fire_schedule,
                    "PreviewSchedule": planner.preview_schedule,
                    "PauseDispatch": operator.pause_dispatch,
                    "ResumeDispatch": operator.resume_dispatch,
                    "GetDispatchStatus": operator.get_dispatch_status,
                }
            ),
        )
    )
    return server


def listen(server: grpc.aio.Server, address: str) -> int:
    """Bind the address and return the port, which differs from the one asked for if that was 0."""
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise PortInUse(
            f"Cannot listen on {address}: is another pulsed there? PULSE_GRPC_ADDR takes another port."
        )
    return port
