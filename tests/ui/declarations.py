"""What code declares for topics, sent as a worker does."""

from __future__ import annotations

from typing import Any

from pulse.topics import entries_message
from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest


async def declare(server: ServerUnderTest, worker: str, topic: str = "mail", **entries: Any) -> None:
    """Let a worker declare entries of the settings of a topic."""
    declared = pb.DeclaredTopic(topic=topic, entries=entries_message(entries))
    await server.stub.DeclareTopics(pb.DeclareTopicsRequest(worker_id=worker, topics=[declared]))
