"""pulsed with users, as a process: signals, and what never reaches its log."""

import base64
import signal
from pathlib import Path

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.access.counted_checks import hashed
from tests.server.pulsed_process import Pulsed, pulsed
from tests.transport.authorized import CallerWith, answer, basic

CANARY = "tweety-4711"
PASSWORD = f"{CANARY}-right"
STREAM = pb.StreamJobsRequest(topics=["mail"], worker_id="w1", capacity=1)


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def code(server: Pulsed, user: str, password: str = PASSWORD) -> grpc.StatusCode:
    async with grpc.aio.insecure_channel(server.address) as channel:
        return (await answer(CallerWith(channel, basic(user, password)), "GetDispatchStatus"))[0]


async def test_hangup_has_the_file_of_users_read_again(database_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    write(file, f"ann:{PASSWORD}\n")
    async with pulsed(database_dsn, PULSE_AUTH_USERS_FILE=str(file)) as server:
        assert await code(server, "ann") is grpc.StatusCode.OK
        write(file, f"bob:{PASSWORD}\n")
        server.signal(signal.SIGHUP)
        event = await server.wait_for("users_changed")
        assert (event["added"], event["removed"]) == (["bob"], ["ann"])
        assert await code(server, "ann") is grpc.StatusCode.UNAUTHENTICATED
        assert await code(server, "bob") is grpc.StatusCode.OK
        server.signal()
        assert await server.ended() == 0


async def test_hangup_does_nothing_to_users_of_the_environment(database_dsn: str) -> None:
    async with pulsed(database_dsn, PULSE_AUTH_USERS=f"ann:{PASSWORD}") as server:
        server.signal(signal.SIGHUP)
        await server.wait_for("no_users_to_read_again")
        assert await code(server, "ann") is grpc.StatusCode.OK


@pytest.mark.parametrize("kind", ["plain", "hashed"])
async def test_no_secret_reaches_a_log_or_an_answer(database_dsn: str, tmp_path: Path, kind: str) -> None:
    """Every kind of login and refusal, and a broken file, with everything logged."""
    file = tmp_path / "users"
    secret = PASSWORD if kind == "plain" else hashed(PASSWORD)
    write(file, f"ann:{secret}\nbob:{secret}:viewer\n")
    headers = [
        *(
            basic(user, password)[0][1]
            for user in ("ann", "unknown")
            for password in (PASSWORD, f"{CANARY}!")
        ),
        *(basic(CANARY, CANARY)[0][1], f"Basic {CANARY}", f"Bearer {CANARY}", CANARY),
        f"Basic {base64.b64encode(CANARY.encode()).decode()}",
        *(basic("ann", f"{CANARY}-{number}")[0][1] for number in range(8)),
        basic("bob", PASSWORD)[0][1],
    ]
    sentences = []
    async with pulsed(
        database_dsn, PULSE_AUTH_USERS_FILE=str(file), PULSE_LOG_LEVEL="debug", GRPC_VERBOSITY="ERROR"
    ) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            for header in headers:
                caller = CallerWith(channel, (("authorization", header),))
                for method, request in (("SubmitJob", None), ("StreamJobs", STREAM)):
                    sentences.append((await answer(caller, method, request))[1])
            stream = CallerWith(channel, basic("ann", PASSWORD)).StreamJobs(STREAM)
            await stream.read()
            write(file, f"ann:{CANARY}:{CANARY}\n")
            server.signal(signal.SIGHUP)
            await server.wait_for("users_file_is_bad")
            write(file, f"bob:{secret}\n")
            server.signal(signal.SIGHUP)
            await server.wait_for("users_changed")
            with pytest.raises(grpc.aio.AioRpcError):
                await stream.read()
            sentences.append(await stream.details())
        server.signal()
        assert await server.ended() == 0
    assert {line["event"] for line in server.events} >= {"login_refused", "stream_revoked", "stopped"}
    forbidden = [CANARY, secret, *(header.split()[-1] for header in headers)]
    for text in (server.log, "\n".join(sentences)):
        assert not [entry for entry in forbidden if entry in text]
