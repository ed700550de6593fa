"""The schedules of the fake pulsed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb


class FakeSchedules:
    """Records the requests about schedules. Stores none."""

    def __init__(self) -> None:
        self.definitions: list[pb.CreateScheduleRequest] = []
        self.fired: list[str] = []
        self.schedule_refusal: tuple[grpc.StatusCode, str] | None = None
        self.knows_declarations = True
        self.knows_overlap = True

    def CreateSchedule(  # noqa: N802
        self, request: pb.CreateScheduleRequest, context: grpc.ServicerContext
    ) -> pb.CreateScheduleResponse:
        with self._change(context):
            self.definitions.append(request)
            refusal = self.schedule_refusal
        if refusal is not None:
            context.abort(*refusal)
        self._lose_answer(context)
        view = pb.ScheduleView(schedule_id="s1", name=request.name, kind="cron", cron="@daily")
        view.overlap = request.overlap if self.knows_overlap else ""
        return pb.CreateScheduleResponse(schedule_id="s1", schedule=view)

    def DeclareSchedules(  # noqa: N802
        self, request: pb.DeclareSchedulesRequest, context: grpc.ServicerContext
    ) -> pb.DeclareSchedulesResponse:
        if not self.knows_declarations:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        return pb.DeclareSchedulesResponse()

    def GetSchedule(self, request: pb.GetScheduleRequest, context: Any) -> pb.GetScheduleResponse:  # noqa: N802
        view = pb.ScheduleView(schedule_id="s1", topic="t", kind="cron", cron="@daily")
        return pb.GetScheduleResponse(schedule=view)

    def FireSchedule(self, request: pb.FireScheduleRequest, context: Any) -> pb.FireScheduleResponse:  # noqa: N802
        with self._change(context):
            self.fired.append(request.job_id)
        self._lose_answer(context)
        return pb.FireScheduleResponse(job_id=request.job_id)

    def _change(self, context: grpc.ServicerContext) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _lose_answer(self, context: grpc.ServicerContext) -> None:
        raise NotImplementedError
