"""The RPCs about the servers themselves: what they did, minute by minute, and which there are."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from pulse_server.domain.overview import ALL_TOPICS
from pulse_server.service.minutes import Minutes
from pulse_server.service.servers import Servers
from pulse_server.telemetry.metrics import OTHER_TOPICS
from pulse_server.transport.grpc import convert, convert_overview


class Statistician:
    def __init__(self, minutes: Minutes, servers: Servers) -> None:
        self._minutes = minutes
        self._servers = servers

    async def get_statistics(
        self, request: pb.GetStatisticsRequest, _context: Any
    ) -> pb.GetStatisticsResponse:
        span = await self._minutes.last(limits.check_minutes(request.minutes), _topic(request.topic))
        return pb.GetStatisticsResponse(
            minutes=[convert_overview.minute_view(minute) for minute in span.minutes],
            wait=convert_overview.latency(span.wait),
            run=convert_overview.latency(span.run),
        )

    async def list_servers(self, _request: pb.ListServersRequest, _context: Any) -> pb.ListServersResponse:
        return pb.ListServersResponse(
            servers=[
                pb.ServerView(
                    server_id=server.id,
                    name=server.name,
                    started_at=convert.timestamp(server.started_at),
                    workers=len(server.workers),
                )
                for server in await self._servers.servers()
            ]
        )


def _topic(name: str) -> str:
    # What ListTopics names may be asked for, and it names those together that are too many to tell apart.
    return name if name in (ALL_TOPICS, OTHER_TOPICS) else limits.check_topic(name)
