"""What leads along the arrows of topics with limits."""

from __future__ import annotations

from pulse.v1 import pulse_pb2 as pb
from tests.transport.arrows import arrow
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import StreamingWorker


async def limit(server: ServerUnderTest) -> None:
    await server.stub.SetTopic(
        pb.SetTopicRequest(topic="mail", entries=pb.TopicEntries(running=1, per_lane=1))
    )


@arrow("(new)", "PENDING", "hand_over_limited")
async def batch_handed_over_under_a_limit(server: ServerUnderTest, worker: StreamingWorker) -> None:
    async with server.worker("w2", capacity=1):
        await limit(server)
        await server.dispatch_settles()
        await server.submit_many(2)
        assert ("hand_over_limited",) in server.app.metrics.statement_time.values
