"""Which callers every method accepts and refuses, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.service import LOGIN_BURST_PER_PEER, LOGIN_BURST_PER_USER
from pulse_server.access.users import Role, User
from pulse_server.base import tuning
from pulse_server.doors import callers
from pulse_server.doors.boundary import SERVICE
from pulse_server.doors.ports import peer_address
from tests.access.counted_checks import CountedChecks, count_checks, hashed
from tests.rows import each_row
from tests.transport.authorized import METHODS, PASSWORD, USERS, CallerWith, answer, basic, caller
from tests.transport.counting_relay import counting_relay
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker

OK = grpc.StatusCode.OK
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
WRONG = "The user or the password is wrong."
ASKED_FOR = (
    "This server wants a user and a password: give Pulse(user=…, password=…), "
    "or set PULSE_USER and PULSE_PASSWORD."
)
STREAM = pb.StreamJobsRequest(topics=["mail"], worker_id="w1", capacity=1)
HASHED = (User("worker", hashed(PASSWORD), Role.WORKER), User("admin", hashed(PASSWORD)))


@pytest.fixture
async def guarded(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn, users=USERS) as server:
        yield server


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> CountedChecks:
    """Counts checks; the clock of the throttle stands still."""
    monkeypatch.setattr("pulse_server.access.service.LOGIN_INTERVAL", timedelta(days=1))
    return count_checks(monkeypatch)


async def test_every_method_denies_a_caller_without_credentials(guarded: ServerUnderTest) -> None:
    for method in METHODS:
        assert await answer(guarded.stub, method.name) == (UNAUTHENTICATED, ASKED_FOR), method.name


async def test_every_method_denies_a_wrong_password(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        for method in METHODS:
            code, sentence = await answer(caller(server.channel, f"x-{method.name}"), method.name)
            assert (code, sentence) == (UNAUTHENTICATED, WRONG) or code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("users", [USERS, HASHED], ids=["plain", "hashed"])
@pytest.mark.parametrize("method", ["GetDispatchStatus", "StreamJobs"], ids=["unary", "stream"])
async def test_matrix_of_credentials(database_dsn: str, users: tuple[User, ...], method: str) -> None:
    request = STREAM if method == "StreamJobs" else None
    async with server_under_test(database_dsn, users=users) as server:

        async def ends(metadata: tuple[tuple[str, str], ...]) -> tuple[grpc.StatusCode, str]:
            return await answer(CallerWith(server.channel, metadata), method, request)

        malformed = "The authorization cannot be read: it has to be 'Basic' and the base64 of user:password."
        assert await ends(()) == (UNAUTHENTICATED, ASKED_FOR)
        for header in ("Basic", "Basic ?", "Bearer abc", basic("admin")[0][1][6:]):
            assert await ends((("authorization", header),)) == (UNAUTHENTICATED, malformed), header
        assert await ends((*basic("admin"), *basic("admin"))) == (UNAUTHENTICATED, malformed)
        assert await ends(basic("admin", "wrong")) == (UNAUTHENTICATED, WRONG)
        assert await ends(basic("admin", "")) == (UNAUTHENTICATED, WRONG)
        assert await ends(basic("unknown")) == (UNAUTHENTICATED, WRONG)
        for _ in range(2):  # checked, then remembered
            assert await ends(basic("admin")) == (OK, "")


async def test_open_server_needs_no_user(server: ServerUnderTest) -> None:
    assert server.app.doors.access is None
    assert await answer(server.stub, "GetDispatchStatus") == (OK, "")


async def test_first_call_of_a_user_works_like_any_other(guarded: ServerUnderTest) -> None:
    """Its code path differs from that of later calls. The caller must not notice, not even when refused."""
    payload = b"x" * 100_000
    first = caller(guarded.channel, "producer")
    job_id = (await first.SubmitJob(pb.SubmitJobRequest(topic="mail", payload=payload))).job_id
    assert (await guarded.table.row(job_id))["payload"] == payload
    code, sentence = await answer(caller(guarded.channel, "viewer"), "GetJob")
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence.startswith("job_id")


async def test_first_call_with_bytes_that_are_no_message_is_an_invalid_argument(
    guarded: ServerUnderTest,
) -> None:
    call = guarded.channel.unary_unary(f"/{SERVICE}/GetJob")
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff\xff\xff", metadata=basic("viewer"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_call_that_ends_without_a_request_is_answered(guarded: ServerUnderTest) -> None:
    call = guarded.channel.stream_stream(f"/{SERVICE}/GetJob")(metadata=basic("viewer"))
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_unknown_method_is_reported_to_users_only(guarded: ServerUnderTest) -> None:
    call = guarded.channel.unary_unary(f"/{SERVICE}/DropTables")
    for metadata, code in (
        ((), UNAUTHENTICATED),
        (basic("admin"), grpc.StatusCode.UNIMPLEMENTED),  # checked
        (basic("admin"), grpc.StatusCode.UNIMPLEMENTED),  # remembered
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", metadata=metadata)
        assert caught.value.code() is code


async def test_method_that_is_not_in_the_table_is_denied_even_to_an_admin(guarded: ServerUnderTest) -> None:
    permissions, kept = callers.ROLES_THAT_MAY, dict(callers.ROLES_THAT_MAY)
    del permissions[f"/{SERVICE}/GetDispatchStatus"]
    try:
        for _ in range(2):
            assert await answer(caller(guarded.channel, "admin"), "GetDispatchStatus") == (
                grpc.StatusCode.PERMISSION_DENIED,
                "User 'admin' has the role admin, which may not call GetDispatchStatus. Roles that may: "
                "none.",
            )
    finally:  # in its order: the table of the docs has the same
        permissions.clear()
        permissions.update(kept)


async def test_worker_streams_and_reports_with_its_credentials(guarded: ServerUnderTest) -> None:
    job_id = await ServerUnderTest.submit(_as(guarded, "producer"))
    async with StreamingWorker(caller(guarded.channel, "worker"), "w1") as worker:
        job = await worker.take_one()
        assert job.job_id == job_id
        await worker.complete(job)
    await guarded.table.wait_until(job_id, status="COMPLETED")


def _as(server: ServerUnderTest, user: str) -> ServerUnderTest:
    return ServerUnderTest(
        server.app, server.address, server.channel, caller(server.channel, user), server.table
    )


async def test_refusals_are_counted(guarded: ServerUnderTest) -> None:
    await answer(guarded.stub, "GetJob")
    await answer(caller(guarded.channel, "admin", "wrong"), "GetJob")
    await answer(caller(guarded.channel, "viewer"), "RetryJob")
    with pytest.raises(grpc.aio.AioRpcError):
        await guarded.channel.unary_unary("/made/Up")(b"")
    metrics = guarded.app.metrics
    assert metrics.logins.values == {("wrong",): 1, ("ok",): 1}
    assert metrics.rpcs.values == {
        ("GetJob", "UNAUTHENTICATED"): 2,
        ("RetryJob", "PERMISSION_DENIED"): 1,
        ("(other)", "UNAUTHENTICATED"): 1,
    }


async def test_flood_of_bad_logins_is_hashed_a_few_times_and_leaves_users_alone(
    database_dsn: str, checks: CountedChecks
) -> None:
    async with server_under_test(database_dsn, users=HASHED) as server:
        user = caller(server.channel, "admin")
        assert await answer(user, "GetDispatchStatus") == (OK, "")
        ends = await asyncio.gather(
            *(answer(caller(server.channel, f"user-{n}"), "GetJob") for n in range(500)),
            *(answer(caller(server.channel, "admin", f"wrong-{n}"), "GetJob") for n in range(500)),
        )
        assert {code for code, _ in ends} <= {
            UNAUTHENTICATED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.UNAVAILABLE,
        }
        assert await answer(user, "GetDispatchStatus") == (OK, "")
        sentence = next(text for code, text in ends if code is grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert sentence.startswith("Too many logins from this address have failed. Try again in ")
    assert checks.count == 1 + LOGIN_BURST_PER_PEER


async def test_body_of_a_refused_call_is_not_taken_in(guarded: ServerUnderTest) -> None:
    """gRPC reads the whole message before it calls a unary handler. A refused call must not get so far."""
    body = pb.SubmitJobRequest(topic="mail", payload=b"x" * (tuning.MAX_MESSAGE_BYTES - 1000))
    refused = (
        (basic("viewer", "wrong"), UNAUTHENTICATED),
        ((), UNAUTHENTICATED),
        (basic("viewer"), grpc.StatusCode.PERMISSION_DENIED),  # checked
        (basic("viewer"), grpc.StatusCode.PERMISSION_DENIED),  # remembered
    )
    # 64 KiB. A busy machine takes in more before the refusal is on its way.
    for metadata, code in refused:
        assert await _sent_until_answered(guarded, body, metadata, code) < tuning.MAX_MESSAGE_BYTES // 2
    let_in = await _sent_until_answered(guarded, body, basic("producer"), grpc.StatusCode.INVALID_ARGUMENT)
    assert let_in > tuning.MAX_MESSAGE_BYTES - 1000


async def _sent_until_answered(
    server: ServerUnderTest,
    request: pb.SubmitJobRequest,
    metadata: tuple[tuple[str, str], ...],
    code: grpc.StatusCode,
) -> int:
    """Return how many bytes the server read for this call."""
    async with (
        counting_relay(server.address) as relay,
        grpc.aio.insecure_channel(relay.address) as channel,
    ):
        assert (await answer(CallerWith(channel, metadata), "SubmitJob", request))[0] is code
        return relay.forwarded


@each_row(
    "peer, address",
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4711", "fe80::1"),
        ("unix:/run/pulse.sock", "unix"),
        ("unix:", "unix"),
    ],
)
def test_peer_is_the_address_without_its_port(peer: str, address: str) -> None:
    assert peer_address(peer) == address


async def test_caller_cannot_change_its_address_by_reconnecting(
    database_dsn: str, checks: CountedChecks
) -> None:
    async with server_under_test(database_dsn, users=HASHED) as server:
        for number in range(LOGIN_BURST_PER_USER + 3):
            # Another channel, another port.
            options = (("grpc.use_local_subchannel_pool", 1),)
            async with grpc.aio.insecure_channel(server.address, options=options) as channel:
                await answer(CallerWith(channel, basic("admin", f"wrong-{number}")), "GetJob")
    assert checks.count == LOGIN_BURST_PER_USER
