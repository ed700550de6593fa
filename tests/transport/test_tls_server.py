"""The gRPC port with TLS: which clients can connect, and which certificate they receive."""

import asyncio
import logging
import shutil
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.doors.ports import Certificates
from tests.transport.pulse_server_under_test import server_under_test
from tests.transport.streaming_worker import StreamingWorker
from tests.transport.tls_files import Authority, channel_to, make_authority, names_shown

FIRST = ["localhost", "127.0.0.1"]
SECOND = ["localhost", "127.0.0.1", "second.example"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ours")


@pytest.fixture
def other_authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "theirs")


@pytest.fixture
def _every_handshake_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.doors.ports.CERTIFICATE_LOOK_INTERVAL", timedelta(0))


async def _submit(channel: grpc.aio.Channel) -> str:
    request = pb.SubmitJobRequest(topic="mail")
    return str((await PulseServiceStub(channel).SubmitJob(request, timeout=10)).job_id)


async def _is_refused(channel: grpc.aio.Channel) -> bool:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _submit(channel)
    return refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_port_with_tls_speaks_nothing_else(database_dsn: str, authority: Authority) -> None:
    async with server_under_test(database_dsn, tls=authority.server()) as server:
        async with channel_to(server.address, authority) as channel:
            assert await _submit(channel)
        assert await _is_refused(server.channel)  # in plain text


async def test_mutual_tls_lets_in_only_clients_of_its_authority(
    database_dsn: str, authority: Authority, other_authority: Authority
) -> None:
    files = authority.server(client_ca=authority.file)
    async with server_under_test(database_dsn, tls=files) as server:
        async with channel_to(server.address, authority, authority.client()) as known:
            assert await _submit(known)
        async with channel_to(server.address, authority) as nameless:
            assert await _is_refused(nameless)
        async with channel_to(server.address, authority, other_authority.client()) as foreign:
            assert await _is_refused(foreign)


@pytest.mark.usefixtures("_every_handshake_looks")
async def test_new_certificate_is_shown_to_new_connections_while_old_streams_go_on(
    database_dsn: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pulse_server.doors.ports")
    async with (
        server_under_test(database_dsn, tls=authority.server()) as server,
        channel_to(server.address, authority) as channel,
        StreamingWorker(PulseServiceStub(channel), "w1") as worker,
    ):
        assert await names_shown(server.address, authority) == FIRST
        authority.server(*SECOND)
        assert await names_shown(server.address, authority) == SECOND
        async with channel_to(server.address, authority) as another:
            job_id = await _submit(another)
        assert (await worker.take_one()).job_id == job_id
    (event,) = [record for record in caplog.records if record.message == "certificate_reloaded"]
    assert vars(event)["names"] == SECOND
    assert vars(event)["expires_at"].endswith("+00:00")


@pytest.mark.usefixtures("_every_handshake_looks")
async def test_files_that_cannot_be_used_leave_the_old_certificate_in_place(
    database_dsn: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.server()
    async with server_under_test(database_dsn, tls=files) as server:
        files.certificate.write_text("half a certif")
        for _ in range(3):
            assert await names_shown(server.address, authority) == FIRST
        assert [record.message for record in caplog.records] == ["certificate_not_reloaded"]  # said once
        files.key.unlink()
        assert await names_shown(server.address, authority) == FIRST
        authority.server(*SECOND)
        assert await names_shown(server.address, authority) == SECOND


@pytest.mark.usefixtures("_every_handshake_looks")
async def test_certificate_waits_for_its_key(database_dsn: str, authority: Authority, tmp_path: Path) -> None:
    files = authority.server()
    renewed = make_authority(tmp_path / "renewed")
    other = Authority(renewed.directory, authority.ca).server(*SECOND)
    async with server_under_test(database_dsn, tls=files) as server:
        shutil.copy(other.certificate, files.certificate)
        assert await names_shown(server.address, authority) == FIRST
        shutil.copy(other.key, files.key)
        assert await names_shown(server.address, authority) == SECOND


@pytest.mark.usefixtures("_every_handshake_looks")
async def test_directory_that_is_swapped_by_a_link_is_noticed(
    database_dsn: str, authority: Authority, tmp_path: Path
) -> None:
    """As Kubernetes updates secrets: the paths stay, and a link in them changes its target."""
    for version, names in (("v1", FIRST), ("v2", SECOND)):
        (tmp_path / version).mkdir()
        Authority(tmp_path / version, authority.ca).server(*names)
    (tmp_path / "live").symlink_to("v1")
    files = type(authority.server())(tmp_path / "live" / "server.pem", tmp_path / "live" / "server.key")
    async with server_under_test(database_dsn, tls=files) as server:
        assert await names_shown(server.address, authority) == FIRST
        (tmp_path / "next").symlink_to("v2")
        (tmp_path / "next").rename(tmp_path / "live")
        assert await names_shown(server.address, authority) == SECOND


@pytest.mark.usefixtures("_every_handshake_looks")
async def test_authority_of_the_clients_can_be_replaced(
    database_dsn: str, authority: Authority, other_authority: Authority, tmp_path: Path
) -> None:
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.pem)
    async with server_under_test(database_dsn, tls=authority.server(client_ca=trusted)) as server:
        async with channel_to(server.address, authority, other_authority.client()) as before:
            assert await _is_refused(before)
        trusted.write_bytes(other_authority.pem)
        async with channel_to(server.address, authority, other_authority.client()) as after:
            assert await _submit(after)
        async with channel_to(server.address, authority, authority.client()) as former:
            assert await _is_refused(former)


@pytest.mark.usefixtures("_every_handshake_looks")
async def test_handshakes_in_parallel_all_succeed_while_the_files_change(
    database_dsn: str, authority: Authority
) -> None:
    files = authority.server()
    spare = Authority(authority.directory / "spare", authority.ca)
    spare.directory.mkdir()
    new = spare.server(*SECOND)

    async def call() -> str:
        async with channel_to(server.address, authority) as channel:
            return await _submit(channel)

    async with server_under_test(database_dsn, tls=files) as server:
        calls = [asyncio.create_task(call()) for _ in range(40)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        new.certificate.replace(files.certificate)  # between the two the pair does not fit
        calls += [asyncio.create_task(call()) for _ in range(20)]
        new.key.replace(files.key)
        assert len(set(await asyncio.gather(*calls))) == 60
        assert await names_shown(server.address, authority) == SECOND


async def test_files_are_left_alone_between_two_looks(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.ports.CERTIFICATE_LOOK_INTERVAL", timedelta(hours=1))
    certificates = Certificates(authority.server())
    before = certificates.current()
    authority.server(*SECOND)
    assert certificates.current() is before
    certificates.read_again()  # as SIGHUP does
    assert list(certificates.current().names) == SECOND


@pytest.mark.usefixtures("_every_handshake_looks")
async def test_other_servers_of_the_process_follow_the_files_too(authority: Authority) -> None:
    certificates = Certificates(authority.server(client_ca=authority.file))
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificates.server_ssl_context()
    )
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await names_shown(address, authority) == FIRST  # and no client certificate is asked for
        authority.server(*SECOND)
        assert await names_shown(address, authority) == SECOND
        (authority.directory / "server.key").write_text("broken")
        assert await names_shown(address, authority) == SECOND
