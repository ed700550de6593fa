"""Several processes behind one port: they share the work, are replaced when they die, and stop together."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.eventually import PATIENCE_SECONDS
from tests.server.pulsed_process import Pulsed, caller_of, pulsed, run_pulsed
from tests.server.statement_waits import statement_waits
from tests.transport.jobs_table import JobsTable
from tests.transport.streaming_worker import StreamingWorker

TWO = {"PULSE_PROCESSES": "2"}
SOON = {"PULSE_HEARTBEAT_INTERVAL": "500ms", "PULSE_WATCHDOG_INTERVAL": "300ms"}
QUICK_LEASE = SOON | {"PULSE_LEASE_TTL": "2s"}
# The kernel deals connections out by a hash of their addresses: that all of these go to one process of two
# happens once in 33 million runs.
CONNECTIONS = 26


@pytest.fixture
async def table(database_dsn: str) -> AsyncIterator[JobsTable]:
    connection = await asyncpg.connect(database_dsn)
    yield JobsTable(connection)
    await connection.close()


def children_of(server: Pulsed) -> dict[int, int]:
    """The pid of each process, by its number, as far as the log was read."""
    return {line["process"]: line["pid"] for line in server.events if line["event"] == "process_serving"}


async def connection_of_its_own(stack: AsyncExitStack, server: Pulsed) -> Any:
    """A stub on a connection that it shares with no other."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.aio.insecure_channel(server.address, options=options)
    return PulseServiceStub(await stack.enter_async_context(channel))


class Load:
    """Producers and a worker, at work until they are stopped. `acknowledged` are the jobs that they sent."""

    def __init__(self, address: str) -> None:
        self.acknowledged: list[str] = []
        self._client = pulse.Pulse(address, concurrency=20, drain_timeout=timedelta(milliseconds=200))
        self._client.register("load", _work)
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> "Load":
        self._worker = asyncio.create_task(self._client.run(handle_signals=False))
        self._producers = [asyncio.create_task(self._produce()) for _ in range(4)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop_producing()
        self._worker.cancel()
        await asyncio.gather(*self._producers, self._worker, return_exceptions=True)
        await self._client.close()

    def stop_producing(self) -> None:
        for task in self._producers:
            task.cancel()

    async def goes_on(self, more: int = 50) -> None:
        """Return once that many more jobs were acknowledged."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            goal = len(self.acknowledged) + more
            await self._changed.wait_for(lambda: len(self.acknowledged) >= goal)

    async def _produce(self) -> None:
        while True:
            try:
                handle = await self._client.enqueue("load")
            except pulse.Unavailable:
                continue
            async with self._changed:
                self.acknowledged.append(str(handle.id))
                self._changed.notify_all()


async def _work() -> None:
    await asyncio.sleep(0.001)


@asynccontextmanager
async def load_on(server: Pulsed) -> AsyncIterator[Load]:
    async with Load(server.address) as load:
        await load.goes_on()
        yield load


async def test_every_process_gets_connections_and_does_work(database_dsn: str, table: JobsTable) -> None:
    async with pulsed(database_dsn, "--processes", "2") as server, AsyncExitStack() as stack:
        serving = server.events[-1]
        assert (serving["processes"], serving["pid"]) == (2, server.process.pid)
        assert "process" not in serving
        assert sorted(children_of(server)) == [1, 2]
        workers = []
        for number in range(CONNECTIONS):
            stub = await connection_of_its_own(stack, server)
            worker = StreamingWorker(stub, f"w{number}", topics=[f"t{number}"], capacity=1)
            workers.append((stub, await stack.enter_async_context(worker)))
        connected = [await server.wait_for("worker_connected") for _ in workers]
        assert {line["process"] for line in connected} == {1, 2}
        for number, (_, worker) in enumerate(workers):
            # Submitted on another connection: the processes wake each other.
            other, _ = workers[number - 1]
            await other.SubmitJob(pb.SubmitJobRequest(topic=f"t{number}"))
            await worker.complete(await worker.take_one())
    assert await table.count("status = 'COMPLETED' AND attempts = 1") == CONNECTIONS


async def test_killed_process_is_replaced_and_no_job_is_lost(database_dsn: str, table: JobsTable) -> None:
    # With HTTP, too: its socket is left behind by one who is killed, and must not be in the way of the next.
    async with pulsed(database_dsn, **TWO, **QUICK_LEASE, PULSE_HTTP_ADDR="127.0.0.1:0") as server:
        before = children_of(server)
        async with load_on(server) as load:
            for number, pid in before.items():
                os.kill(pid, signal.SIGKILL)
                ended = await server.wait_for("process_ended")
                assert (ended["child"], ended["child_pid"], ended["how"]) == (number, pid, "SIGKILL")
                assert (await server.wait_for("process_restarted"))["child"] == number
                await load.goes_on()
            load.stop_producing()
            await all_are_completed(table, load.acknowledged)
        after = children_of(server)
        assert not set(after.values()) & set(before.values())
        server.signal()
        assert await server.ended() == 0


async def test_stop_under_load_loses_nothing_and_leaves_no_process_behind(
    database_dsn: str, table: JobsTable
) -> None:
    # The worker gives up to report only when its leases have ended. None may lapse before the stop.
    async with pulsed(database_dsn, **TWO, PULSE_LEASE_TTL="6s", **SOON) as server, load_on(server) as load:
        server.signal()
        assert await server.ended() == 0  # which reads the log to its end: no process holds it open any more
        acknowledged = list(load.acknowledged)
    for pid in children_of(server).values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    stopped = [line.get("process") for line in server.events if line["event"] == "stopped"]
    assert sorted(stopped[:2]) == [1, 2]
    assert stopped[2:] == [None]
    assert not {line["level"] for line in server.events} & {"error", "critical"}
    ids = {str(row["id"]) for row in await table.connection.fetch("SELECT id FROM pulse.all_jobs")}
    assert set(acknowledged) <= ids
    # What was claimed was delivered, or given back with its attempt.
    assert await table.count("status = 'RETRYING' AND attempts > 0") == 0


async def test_second_signal_waits_for_nothing(database_dsn: str, table: JobsTable) -> None:
    async with (
        pulsed(database_dsn, **TWO) as server,
        caller_of(server) as stub,
        table.connection.transaction(),
    ):
        await table.connection.execute("LOCK TABLE pulse.jobs IN SHARE MODE")
        submitting = asyncio.ensure_future(stub.SubmitJob(pb.SubmitJobRequest(topic="mail")))
        await statement_waits(table, "insert_one")
        server.signal()
        await server.wait_for("draining")
        server.signal()
        assert await server.ended() == 1
        with pytest.raises(grpc.aio.AioRpcError):
            await submitting
    assert "error" not in {line["level"] for line in server.events}


async def test_processes_end_with_a_supervisor_that_is_killed(database_dsn: str) -> None:
    async with pulsed(database_dsn, **TWO, **QUICK_LEASE) as server, load_on(server):
        server.signal(signal.SIGKILL)
        assert await server.ended() == -signal.SIGKILL  # after the log was closed by everybody
    for event in ("supervisor_gone", "draining", "stopped"):
        assert sorted(line["process"] for line in server.events if line["event"] == event) == [1, 2]


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_second_pulsed_on_the_port_is_refused(database_dsn: str, processes: str) -> None:
    async with pulsed(database_dsn, **TWO, PULSE_GRPC_ADDR="localhost:0") as server:
        assert server.address.startswith("localhost:")
        assert not server.address.endswith(":0")
        arguments = ("--processes", processes, "--grpc-addr", server.address)
        code, _, errors = await run_pulsed(*arguments, DB_HOST=database_dsn)
        assert code == 1
        (sentence,) = errors.splitlines()
        assert sentence.startswith(f"pulsed: Cannot listen on {server.address}")
        assert "PULSE_GRPC_ADDR" in sentence


async def test_what_keeps_every_process_from_starting_is_printed_once(
    database_dsn: str, tmp_path: Path
) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("not a certificate")
    code, _, errors = await run_pulsed(
        DB_HOST=database_dsn,
        PULSE_GRPC_ADDR="0",
        PULSE_TLS_CERT=str(tmp_path / "cert.pem"),
        PULSE_TLS_KEY=str(tmp_path / "key.pem"),
        **TWO,
    )
    assert code == 1
    (sentence,) = errors.splitlines()
    assert sentence.startswith("pulsed: ")
    assert "PULSE_TLS_CERT" in sentence


async def test_reload_reaches_every_process_and_a_bad_restart_is_tried_again(
    database_dsn: str, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("ann:tweety-4711")
    environment = {**TWO, "PULSE_AUTH_USERS_FILE": str(users)}
    async with pulsed(database_dsn, **environment) as server:
        users.write_text("ann:tweety-4711\nbob:tweety-4712")
        server.signal(signal.SIGHUP)
        changed = [await server.wait_for("users_changed") for _ in range(2)]
        assert sorted(line["process"] for line in changed) == [1, 2]

        good = users.read_text()
        users.write_text("this cannot be read")
        os.kill(children_of(server)[2], signal.SIGKILL)
        assert (await server.wait_for("process_ended"))["how"] == "SIGKILL"
        second = await server.wait_for("process_ended")
        assert (second["child"], second["how"]) == (2, "exit code 1")
        assert "PULSE_AUTH_USERS_FILE, line 1" in second["reason"]
        users.write_text(good)
        assert (await server.wait_for("process_restarted"))["child"] == 2
        server.signal()
        assert await server.ended() == 0
    assert "tweety" not in server.log


async def test_supervisor_with_a_thousand_open_files_still_reads_its_processes(
    database_dsn: str, tmp_path: Path
) -> None:
    """select() fails past descriptor 1023, and each caller of the HTTP port can make the numbers rise."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, resource\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
        "if 'PULSE_LIFELINE' not in os.environ:\n"
        "    for _ in range(1100):\n"
        "        os.open(os.devnull, os.O_RDONLY)\n"
    )
    python_path = os.pathsep.join([str(tmp_path), str(Path(pulse.__file__).parents[1])])
    async with pulsed(database_dsn, **TWO, PYTHONPATH=python_path) as server:
        os.kill(children_of(server)[1], signal.SIGKILL)
        assert (await server.wait_for("process_restarted"))["child"] == 1
        server.signal()
        assert await server.ended() == 0


async def test_secrets_are_in_no_command_line(database_dsn: str) -> None:
    async with pulsed(database_dsn, **TWO, PULSE_AUTH_USERS="ann:tweety-4711") as server:
        pids = ",".join(map(str, [server.process.pid, *children_of(server).values()]))
        listing = await asyncio.create_subprocess_exec(
            "ps", "-o", "args=", "-p", pids, stdout=subprocess.PIPE
        )
        listed = (await listing.communicate())[0].decode()
        assert len(listed.splitlines()) == 3
        assert "tweety" not in listed
        assert "postgres" not in listed


async def test_embedded_postgres_serves_every_process_and_stops_after_them(tmp_path: Path) -> None:
    async with pulsed("", **TWO, PULSE_DATA_DIR=str(tmp_path / "data")) as server, AsyncExitStack() as stack:
        assert server.events[-1]["embedded"] is True
        for _ in range(8):
            stub = await connection_of_its_own(stack, server)
            assert (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id
        server.signal()
        assert await server.ended() == 0
    assert not (tmp_path / "data/postgres/postmaster.pid").exists()


async def all_are_completed(table: JobsTable, ids: list[str]) -> None:
    """Return once each of the jobs is COMPLETED."""
    quoted = ", ".join(f"'{job_id}'" for job_id in ids)
    await table.wait_for_count(len(ids), f"status = 'COMPLETED' AND id IN ({quoted})")
