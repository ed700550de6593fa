"""What callers send and what waits for workers does not decide how much memory pulsed takes."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.server.pulsed_process import Pulsed, pulsed
from tests.transport.streaming_worker import StreamingWorker

MIB = 1024 * 1024
ALONE = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
# Compressible: the database has little to write.
LARGE = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="large", payload=bytes(MIB - 1000))] * 4)


def most_memory(server: Pulsed) -> int:
    """The most that the process ever had, in MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) // 1024


@asynccontextmanager
async def stub_of(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address, ALONE) as channel:
        yield PulseServiceStub(channel)


async def test_large_submits_at_once_are_stored_or_refused_with_a_sentence(database_dsn: str) -> None:
    async def submit() -> str:
        async with stub_of(server.address) as stub:
            try:
                await stub.SubmitJobs(LARGE)
            except grpc.aio.AioRpcError as error:
                return error.details() or ""
            return "stored"

    async with pulsed(database_dsn) as server:
        outcomes = await asyncio.gather(*(submit() for _ in range(60)))
        async with stub_of(server.address) as stub:
            await stub.SubmitJob(pb.SubmitJobRequest(topic="small"))
        print("MEMORY", most_memory(server))
        assert most_memory(server) < 512

    assert outcomes.count("stored") >= 10
    assert all("Try again" in outcome for outcome in outcomes if outcome != "stored")


async def test_queue_of_large_payloads_drains_within_the_memory(database_dsn: str) -> None:
    async with pulsed(database_dsn) as server, stub_of(server.address) as stub:
        for _ in range(28):
            await stub.SubmitJobs(LARGE)
        async with StreamingWorker(stub, "w1", topics=["large"], capacity=1000) as worker:
            for _ in range(4):
                await worker.complete(*await worker.take(28))
        print("MEMORY", most_memory(server))
        assert most_memory(server) < 200


class Stalling:
    """A relay that lets a connection send so much, and then nothing more."""

    def __init__(self, server_address: str, most: int) -> None:
        self._host, _, port = server_address.rpartition(":")
        self._port = int(port)
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()
        self.stalled = 0

    async def __aenter__(self) -> str:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        self._tasks |= {
            asyncio.create_task(self._copy(reader, server_writer, self._most)),
            asyncio.create_task(self._copy(server_reader, writer, None)),
        }

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(64 * 1024):
                writer.write(data)
                await writer.drain()
                if most is not None and (most := most - len(data)) <= 0:
                    self.stalled += 1
                    await asyncio.Event().wait()


async def test_bodies_that_never_end_take_little_and_leave_room_for_others(database_dsn: str) -> None:
    async def send_most(address: str) -> None:
        async with stub_of(address) as stub:
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.SubmitJobs(LARGE)

    async with pulsed(database_dsn) as server, Stalling(server.address, 3 * MIB) as address:
        silent = [asyncio.create_task(send_most(address)) for _ in range(150)]
        async with stub_of(server.address) as stub:
            for _ in range(10):
                await stub.SubmitJob(pb.SubmitJobRequest(topic="small"), timeout=10)
                await asyncio.sleep(0.1)
        print("MEMORY", most_memory(server))
        assert most_memory(server) < 400
        for task in silent:
            task.cancel()
        await asyncio.gather(*silent, return_exceptions=True)
