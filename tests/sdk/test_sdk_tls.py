"""The SDK over TLS: whom it trusts, what it shows, and what it says when there is no handshake."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import pulse
from pulse import tuning
from pulse.wire import endpoint
from pulse.wire.connection import Connection
from pulse.wire.endpoint import make_endpoint
from pulse_server.doors.ports import KeyPair
from pulse_server.settings import TlsFiles
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import run_script
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.tls_files import Authority, make_authority

# Long enough on a busy machine for both calls to learn why the connection fails.
PATIENCE = timedelta(seconds=5)
SECOND = timedelta(seconds=1)
Serve = Callable[..., AbstractAsyncContextManager[ServerUnderTest]]


@pytest.fixture(autouse=True)
def _authorities_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine trusts one authority, which signed nothing here."""
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(make_authority(tmp_path / "machine").file))


@pytest.fixture(autouse=True)
def _time_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need more than two seconds for a handshake."""
    monkeypatch.setattr(tuning, "DIAGNOSIS_SECONDS", 20.0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ours")


@pytest.fixture
def other_authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "theirs")


@pytest.fixture
def serve(database_dsn: str) -> Serve:
    @asynccontextmanager
    async def run(**settings: Any) -> AsyncIterator[ServerUnderTest]:
        async with server_under_test(database_dsn, **settings) as server:
            yield server

    return run


def _by_name(server: ServerUnderTest) -> str:
    return f"localhost:{server.address.rpartition(':')[2]}"


async def _reason(address: str, **options: Any) -> str:
    async with pulse.Pulse(address, timeout=PATIENCE, **options) as p:
        enqueued, looked_up = await asyncio.gather(
            p.enqueue("mail"), p.get_job("0190163d-8694-739b-aea5-966c26f8ad91"), return_exceptions=True
        )
    assert isinstance(enqueued, pulse.Unavailable)
    assert isinstance(looked_up, pulse.Unavailable)
    assert enqueued.message == looked_up.message
    return enqueued.message


# ---------------------------------------------------------------- who is let in


async def test_certificate_has_to_be_for_the_name_that_was_written(
    serve: Serve, authority: Authority
) -> None:
    async with serve(tls=authority.server("localhost")) as server:
        async with pulse.Pulse(_by_name(server), ca=authority.file) as p:
            assert await p.enqueue("mail")  # though 127.0.0.1 is what is dialled
        async with pulse.Pulse(server.address, ca=authority.file, server_name="localhost") as p:
            assert await p.enqueue("mail")
        reason = await _reason(server.address, ca=authority.file)
    assert reason.startswith(
        f"The certificate of pulsed at {server.address} is for localhost, not for 127.0.0.1"
    )
    assert "server_name" in reason


async def test_addresses_are_verified_as_addresses(serve: Serve, authority: Authority) -> None:
    async with serve(tls=authority.server("127.0.0.1")) as server:
        async with pulse.Pulse(server.address, ca=authority.file) as p:
            assert await p.enqueue("mail")
        reason = await _reason(_by_name(server), ca=authority.file)
    assert "is for 127.0.0.1, not for localhost" in reason


async def test_tls_alone_trusts_what_the_machine_trusts(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tls=authority.server()) as server:
        reason = await _reason(server.address, tls=True)
        assert "is signed by an authority that this machine does not know" in reason
        assert "ca=" in reason
        for variable in ("SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
            with monkeypatch.context() as environment:
                environment.setenv(variable, str(authority.file))
                async with pulse.Pulse(server.address, tls=True) as p:
                    assert await p.enqueue("mail")


async def test_authorities_may_stand_in_a_directory(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on Debian, where each has a file that is named by a hash."""
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "0a1b2c3d.0").write_bytes("# Autorité\n".encode() + authority.pem)
    (tmp_path / "certs" / "README").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "no such file"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "certs"))
    made = endpoint.make_tls("h", True)
    assert made is not None
    assert made.roots == authority.pem


async def test_unknown_authority_names_the_file_that_was_given(
    serve: Serve, authority: Authority, other_authority: Authority
) -> None:
    async with serve(tls=authority.server()) as server:
        reason = await _reason(server.address, ca=other_authority.file)
    assert f"is not signed by an authority in '{other_authority.file}'" in reason


async def test_handshakes_that_fail_leave_nothing_of_grpcs_own_on_standard_error(
    serve: Serve, authority: Authority, other_authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    script = """
        import sys
        from datetime import timedelta
        import pulse
        from pulse import tuning

        tuning.DIAGNOSIS_SECONDS = 20.0
        with pulse.SyncPulse(sys.argv[1], ca=sys.argv[2], timeout=timedelta(seconds=5)) as p:
            try:
                p.enqueue("mail")
            except pulse.Unavailable as error:
                print(error)
    """
    async with serve(tls=authority.server()) as server:
        printed = await asyncio.to_thread(run_script, script, server.address, str(other_authority.file))
    assert "is not signed by an authority" in printed


async def test_server_whose_certificate_expired_is_named_with_the_date(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchecked(pair: KeyPair, *_: object) -> None:
        """A server that has run past the end of its certificate."""

    monkeypatch.setattr("pulse_server.doors.ports._require_valid_now", unchecked)
    async with serve(tls=authority.server(not_after=datetime(2024, 3, 1))) as server:
        reason = await _reason(server.address, ca=authority.file)
    assert "expired on Mar  1 00:00:00 2024 GMT" in reason


async def test_client_certificate_is_shown_where_it_is_asked_for(
    serve: Serve, authority: Authority, other_authority: Authority
) -> None:
    certificate, key = authority.client()
    both = authority.directory / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    async with serve(tls=authority.server(client_ca=authority.file)) as server:
        for cert in ((certificate, key), (str(certificate), str(key)), both, str(both)):
            async with pulse.Pulse(server.address, ca=authority.file, cert=cert) as p:
                assert await p.enqueue("mail")
        reason = await _reason(server.address, ca=authority.file)
        assert "requires a client certificate" in reason
        assert "PULSE_TLS_CLIENT_CERT" in reason
        foreign = other_authority.client()
        reason = await _reason(server.address, ca=authority.file, cert=foreign)
        assert f"refuses the client certificate '{foreign[0]}'" in reason


async def test_error_of_a_plain_client_states_that_the_server_speaks_tls(
    serve: Serve, authority: Authority
) -> None:
    async with serve(tls=authority.server()) as server:
        reason = await _reason(server.address)
    assert reason.startswith(
        f"pulsed at {server.address} speaks TLS, and this client does not: give tls=True"
    )


async def test_error_of_a_plain_client_states_mutual_tls_as_well(serve: Serve, authority: Authority) -> None:
    async with serve(tls=authority.server(client_ca=authority.file)) as server:
        assert "speaks TLS, and this client does not" in await _reason(server.address)


async def test_error_of_a_tls_client_states_that_the_server_speaks_none(
    serve: Serve, authority: Authority
) -> None:
    async with serve() as server:
        reason = await _reason(server.address, ca=authority.file)
    assert reason.startswith(f"pulsed at {server.address} does not speak TLS: leave out tls, ca and cert")


async def test_server_that_is_away_is_still_called_away(authority: Authority) -> None:
    fake = FakePulsed().start()
    fake.stop()
    assert "is it running?" in await _reason(fake.address, ca=authority.file)


async def test_worker_logs_why_it_cannot_connect_and_keeps_trying(
    serve: Serve, authority: Authority, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tls=authority.server()) as server:
        p = pulse.Pulse(server.address)
        p.register("mail", _nothing)
        async with running(p) as task:
            await eventually(lambda: caplog.records)
            assert not task.done()
        await p.close()
    assert "speaks TLS, and this client does not" in caplog.records[0].getMessage()


# ---------------------------------------------------------------- every channel uses it


def test_blocking_client_speaks_tls(database_dsn: str, authority: Authority) -> None:
    files = authority.server(client_ca=authority.file)

    async def enqueue_from_a_thread() -> pulse.JobHandle:
        async with server_under_test(database_dsn, tls=files) as server:
            with pulse.SyncPulse(server.address, ca=authority.file, cert=authority.client()) as p:
                return await asyncio.to_thread(p.enqueue, "mail")

    assert asyncio.run(enqueue_from_a_thread()).id


async def test_job_that_outlasts_its_lease_is_kept_by_heartbeats_over_mutual_tls(
    serve: Serve, authority: Authority, running: Running
) -> None:
    lease = 3 * SECOND
    files = authority.server(client_ca=authority.file)
    times = {"lease_ttl": lease, "heartbeat_interval": 0.3 * SECOND, "watchdog_interval": 0.1 * SECOND}
    async with serve(tls=files, **times) as server:
        p = pulse.Pulse(server.address, ca=authority.file, cert=authority.client())

        @p.job("mail")
        async def handle() -> None:
            await asyncio.sleep(1.2 * lease.total_seconds())

        async with p, running(p):
            handle_of_job = await p.enqueue("mail")
            await server.table.wait_until(handle_of_job.id, status="COMPLETED")
            info = await p.get_job(handle_of_job.id)
    assert (info.attempts, info.history) == (1, ())


class Handshakes:
    """A server that no client of these tests trusts. Counts the connections."""

    def __init__(self, files: TlsFiles) -> None:
        self.count = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.set_alpn_protocols(["h2"])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        with contextlib.suppress(OSError):
            await writer.start_tls(self._context)
            await reader.read()
        writer.close()


async def test_closed_client_dials_no_more_after_handshakes_that_failed(
    authority: Authority,
    other_authority: Authority,
    running: Running,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether or not Python collects cycles meanwhile, and though the program keeps the error."""
    monkeypatch.setattr(tuning, "DIAGNOSIS_GOOD_FOR_SECONDS", 600.0)
    monkeypatch.setattr(tuning, "REDIAL_LONGEST_MILLISECONDS", 100)
    called, worked, open_ = (Handshakes(authority.server()) for _ in range(3))
    async with called.open() as first, worked.open() as second, open_.open() as third:
        client, worker, control = (
            pulse.Pulse(address, ca=other_authority.file, timeout=PATIENCE)
            for address in (first, second, third)
        )
        worker.register("mail", _nothing)
        control.register("mail", _nothing)
        gc.disable()
        try:
            error = await asyncio.gather(client.enqueue("mail"), return_exceptions=True)
            async with running(worker):
                await eventually(lambda: "is not signed by an authority" in caplog.text)
            await client.close()
            await worker.close()
            async with running(control):
                await eventually(lambda: open_.count)
                closed = (called.count, worked.count)  # what was under way has arrived
                await eventually(lambda: open_.count > 20)
        finally:
            gc.enable()
        assert (called.count, worked.count) == closed
        assert "is not signed by an authority" in str(error)
        await control.close()


async def _nothing() -> None: ...


async def test_reason_that_an_earlier_try_has_found_is_given_if_the_last_one_has_no_time(
    serve: Serve, authority: Authority
) -> None:
    codes = {"failed to connect": grpc.StatusCode.UNAVAILABLE, "no time": grpc.StatusCode.DEADLINE_EXCEEDED}

    async def fail(_seconds: float) -> None:
        details = next(iter(codes))
        raise grpc.aio.AioRpcError(codes.pop(details), grpc.aio.Metadata(), grpc.aio.Metadata(), details)

    async with serve(tls=authority.server()) as server:
        connection = Connection(make_endpoint(server.address, None, None))
        with pytest.raises(pulse.Unavailable, match="speaks TLS, and this client does not"):
            await connection.keep_trying(fail, 60, repeatable=False)
        await connection.close()
    assert not codes
