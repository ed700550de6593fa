"""Clients with the addresses of two servers, of which one is killed, frozen, stopped or never there."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pulse
from tests.eventually import eventually
from tests.system.producer import producing
from tests.system.stage import (
    RECOVERY_SECONDS,
    STEADY,
    Pulsed,
    Stage,
    Worker,
    all_completed,
    finished,
    free_port,
)
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable
from tests.transport.tls_files import chain_of, make_authority

PATIENCE = timedelta(seconds=RECOVERY_SECONDS)


@asynccontextmanager
async def pair(stage: Stage) -> AsyncIterator[tuple[dict[str, Pulsed], str]]:
    """Two servers by their addresses, and the address of both."""
    first, second = await stage.pulsed(**STEADY), await stage.pulsed(**STEADY)
    yield {first.address: first, second.address: second}, f"{first.address},{second.address}"


def in_use(p: pulse.Pulse) -> str:
    return p._caller.session().connection.servers.in_use.address


def place_of(worker: Worker) -> str:
    """The server that the worker connected to last."""
    line = [line for line in worker.log.splitlines() if "Connected to pulsed at" in line][-1]
    return line.partition("Connected to pulsed at ")[2].split(" ")[0]


async def test_killed_server_costs_neither_a_job_nor_an_attempt(stage: Stage, table: JobsTable) -> None:
    async with pair(stage) as (servers, both):
        worker = await stage.worker(both, "work", "sync-work", "gated")
        gate = stage.gate("held")
        async with pulse.Pulse(both) as p, producing(both, max_attempts=1) as producer:
            held = await p.enqueue("gated", Errand(gate=gate), max_attempts=1)
            await stage.started(held.id)
            await producer.acknowledged(20)
            home = place_of(worker)
            servers[home].kill()
            await producer.acknowledged(20)
            await eventually(lambda: place_of(worker) != home, "the worker moves")
            await producer.acknowledged(20)
            # It comes back: the worker goes home, and its handler runs on.
            await stage.pulsed(home, **STEADY)
            await eventually(lambda: place_of(worker) == home, "the worker goes home")
            await producer.acknowledged(20)
            stage.open(gate)
            await stage.wrote(held.id, "end")
        await all_completed(table, [held, *producer.handles])
    assert {len(starts) for starts in stage.by_job([held, *producer.handles]).values()} == {1}
    assert await table.count() == len(producer.handles) + 1


async def test_frozen_server_is_left_by_producer_and_worker(stage: Stage, table: JobsTable) -> None:
    async with pair(stage) as (servers, both), pulse.Pulse(both) as p:
        worker = await stage.worker(both, "work", "gated")
        gate = stage.gate("held")
        held = await p.enqueue("gated", Errand(gate=gate), max_attempts=1)
        await stage.started(held.id)
        frozen = servers[place_of(worker)]
        frozen.signal(signal.SIGSTOP)
        try:
            await eventually(lambda: place_of(worker) != frozen.address, "the idle worker leaves it")
            handle = await p.enqueue("work", Errand(), max_attempts=1)
            await handle.wait(PATIENCE)
            assert in_use(p) != frozen.address
            lease = (await table.row(held.id))["lease_until"]
            await eventually(partial(_is_extended, table, held.id, lease), "the lease is extended elsewhere")
            stage.open(gate)
            assert (await held.wait(PATIENCE)).attempts == 1
        finally:
            frozen.signal(signal.SIGCONT)


async def _is_extended(table: JobsTable, job_id: str, lease: object) -> bool:
    return bool((await table.row(job_id))["lease_until"] > lease)


async def test_server_that_stops_is_left_for_the_other(stage: Stage) -> None:
    async with pair(stage) as (servers, both), pulse.Pulse(both) as p:
        worker = await stage.worker(both, "work")
        stopping = servers[place_of(worker)]
        stopping.signal(signal.SIGTERM)
        assert await stopping.ended() == 0
        handle = await p.enqueue("work", Errand(), max_attempts=1)
        await handle.wait(PATIENCE)
        assert place_of(worker) == in_use(p) != stopping.address


async def test_address_without_a_server_does_no_harm(stage: Stage) -> None:
    server = await stage.pulsed(**STEADY)
    both = f"127.0.0.1:{free_port()},{server.address}"
    await stage.worker(both, "work")
    # Each client begins with a random one of the two.
    async with pulse.Pulse(both) as p, pulse.Pulse(both) as q, pulse.Pulse(both) as r:
        handles = await asyncio.gather(*(client.enqueue("work", Errand()) for client in (p, q, r)))
        for handle in handles:
            await finished(p, handle.id)
        assert {in_use(client) for client in (p, q, r)} == {server.address}


async def test_clients_spread_over_the_servers_and_come_back(stage: Stage) -> None:
    async with pair(stage) as (servers, both):
        clients = [pulse.Pulse(both) for _ in range(16)]
        try:
            await asyncio.gather(*(p.whoami() for p in clients))
            homes = [in_use(p) for p in clients]
            assert set(homes) == set(servers)
            away = next(iter(servers))
            servers[away].kill()
            await asyncio.gather(*(p.whoami() for p in clients))
            assert away not in {in_use(p) for p in clients}
            await stage.pulsed(away, **STEADY)

            async def are_home() -> bool:
                await asyncio.gather(*(p.whoami() for p in clients))
                return [in_use(p) for p in clients] == homes

            await eventually(are_home, "the clients are back")
        finally:
            for p in clients:
                await p.close()


async def test_waits_for_results_follow_to_the_other_server(stage: Stage) -> None:
    async with pair(stage) as (servers, both), pulse.Pulse(both) as p:
        gate = stage.gate("result")
        handle = await p.enqueue("gated", Errand(gate=gate))
        waiting = asyncio.create_task(handle.wait(PATIENCE))
        await asyncio.sleep(0.2)  # so that its stream is open, which changes nothing about the outcome
        servers[in_use(p)].kill()
        await stage.worker(both, "gated")
        stage.open(gate)
        assert (await waiting).status == "COMPLETED"


async def test_each_server_has_the_certificate_of_its_own_host(stage: Stage, tmp_path: Path) -> None:
    """One is for localhost, the other for 127.0.0.1. The killed one is left."""
    authority = make_authority(tmp_path / "authority")
    servers = {}
    for host in ("localhost", "127.0.0.1"):
        certificate = authority.ca.issue_cert(host)
        files = tmp_path / f"{host}.pem", tmp_path / f"{host}.key"
        files[0].write_bytes(chain_of(certificate))
        files[1].write_bytes(certificate.private_key_pem.bytes())
        server = await stage.pulsed(PULSE_TLS_CERT=str(files[0]), PULSE_TLS_KEY=str(files[1]), **STEADY)
        servers[f"{host}:{server.address.rpartition(':')[2]}"] = server
    async with pulse.Pulse(",".join(servers), ca=authority.file) as p:
        await p.whoami()
        first = in_use(p)
        servers[first].kill()
        await p.whoami()
        assert in_use(p) != first
