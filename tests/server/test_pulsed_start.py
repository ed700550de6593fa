"""How pulsed starts, and with which sentence it does not."""

import asyncio
import socket
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.database.rights import STARTUP_PATIENCE, STARTUP_PAUSE, STARTUP_TRY
from tests.server.pulsed_process import caller_of, pulsed, run_pulsed


def sentence_of(errors: str) -> str:
    """The one line that pulsed ended with."""
    (sentence,) = errors.splitlines()
    assert sentence.startswith("pulsed: ")
    return sentence


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("form", ["0", "localhost:0"])
async def test_serving_line_has_the_address_that_takes_calls(database_dsn: str, form: str) -> None:
    async with pulsed(database_dsn, PULSE_GRPC_ADDR=form) as server, caller_of(server) as stub:
        host, _, port = server.address.rpartition(":")
        assert host == ("localhost" if "localhost" in form else "127.0.0.1")
        assert int(port) > 0
        answer = await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))
        assert answer.job_id
        serving = server.events[-1]
        assert serving["pid"] == server.process.pid
        assert serving["embedded"] is False


async def test_misspelled_setting_is_logged_at_the_start(database_dsn: str) -> None:
    async with pulsed(database_dsn, PULSE_LEASE_TLL="1m") as server:
        (entry,) = [event for event in server.events if event["event"] == "setting_unknown"]
        assert "Did you mean PULSE_LEASE_TTL?" in entry["hint"]


async def test_port_in_use_is_reported(database_dsn: str, taken_port: int) -> None:
    code, _, errors = await run_pulsed("--grpc-addr", f":{taken_port}", DB_HOST=database_dsn)
    assert code == 1
    assert f"127.0.0.1:{taken_port}" in sentence_of(errors)
    assert "PULSE_GRPC_ADDR" in errors


async def test_database_that_does_not_exist_is_reported(database_dsn: str) -> None:
    missing = urlunsplit(urlsplit(database_dsn)._replace(path="/not_there"))
    answers = await asyncio.gather(run_pulsed(DB_HOST=missing), run_pulsed("migrate", DB_HOST=missing))
    for code, _, errors in answers:
        assert code == 1
        assert "not_there" in sentence_of(errors)


async def test_schema_that_is_behind_is_refused_with_the_command_to_run(empty_database_dsn: str) -> None:
    code, _, errors = await run_pulsed(DB_HOST=empty_database_dsn)
    assert code == 1
    assert "behind" in sentence_of(errors)
    assert "pulsed migrate" in errors
    assert "pulsed --migrate" in errors


async def test_migrate_applies_once_and_status_lists_what_is_applied(empty_database_dsn: str) -> None:
    async def migrate(*arguments: str) -> str:
        code, output, errors = await run_pulsed("migrate", *arguments, DB_HOST=empty_database_dsn)
        assert code == 0, errors
        return output

    before = await migrate("status")
    assert "0001_schema" in before
    assert all("not applied" in line for line in before.splitlines())
    assert (await migrate()).startswith("applied 0001_schema")
    assert await migrate() == "the schema is up to date\n"
    after = await migrate("status")
    assert "not applied" not in after
    assert len(after.splitlines()) == len(before.splitlines())


async def test_pulsed_that_migrates_at_start_serves(empty_database_dsn: str) -> None:
    async with pulsed(empty_database_dsn, "--migrate") as server, caller_of(server) as stub:
        assert (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id
        assert "migration_applied" in {line["event"] for line in server.events}


async def test_two_that_migrate_at_the_same_time_both_serve(empty_database_dsn: str) -> None:
    async def serves() -> bool:
        async with pulsed(empty_database_dsn, "--migrate") as server, caller_of(server) as stub:
            return bool((await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id)

    assert all(await asyncio.gather(serves(), serves()))


async def test_schema_that_is_newer_is_refused_and_shown(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    await connection.execute("INSERT INTO pulse.schema_migrations VALUES (9999, '9999_from_the_future', 'x')")
    await connection.close()
    calls: list[tuple[str, ...]] = [(), ("--migrate",), ("migrate",), ("migrate", "status")]
    *refused, shown = await asyncio.gather(*(run_pulsed(*call, DB_HOST=database_dsn) for call in calls))
    for code, _, errors in refused:
        assert code == 1
        assert "newer than this server" in sentence_of(errors)
        assert "9999_from_the_future" in errors
    code, output, _ = shown
    assert code == 0
    assert "9999_from_the_future" in output


async def test_database_that_is_away_ends_pulsed_with_a_sentence() -> None:
    """One port without a listener, one where connections are taken and never answered."""
    longest = STARTUP_PATIENCE + STARTUP_PAUSE + STARTUP_TRY
    assert longest < timedelta(seconds=10)
    with socket.socket() as free, socket.socket() as black_hole:
        free.bind(("127.0.0.1", 0))  # bound, but not listening: connections are refused
        black_hole.bind(("127.0.0.1", 0))
        black_hole.listen()
        urls = [
            f"postgres://pulse:secret@127.0.0.1:{listener.getsockname()[1]}/pulse"
            for listener in (free, black_hole)
        ]
        answers = await asyncio.gather(*(run_pulsed(DB_HOST=url) for url in urls))
    for code, _, errors in answers:
        assert code == 1
        assert "database does not answer" in sentence_of(errors)
        assert "secret" not in errors


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("DELETE FROM pulse.dispatch_control", "Put it back: INSERT INTO pulse.dispatch_control"),
        ("DROP TABLE pulse.dispatch_control", 'relation "pulse.dispatch_control" does not exist'),
    ],
)
async def test_switch_that_is_missing_ends_pulsed_with_a_sentence(
    database_dsn: str, damage: str, sentence: str
) -> None:
    connection = await asyncpg.connect(database_dsn)
    await connection.execute(damage)
    await connection.close()

    code, output, errors = await run_pulsed(DB_HOST=database_dsn, PULSE_GRPC_ADDR="127.0.0.1:0")

    assert (code, output) == (1, "")
    assert sentence in errors
    assert "Traceback" not in errors


async def test_switch_that_is_dropped_while_pulsed_serves_is_reported_in_a_sentence(
    database_dsn: str,
) -> None:
    async with pulsed(database_dsn) as server, caller_of(server) as stub:
        connection = await asyncpg.connect(database_dsn)
        await connection.execute("DROP TABLE pulse.dispatch_control")
        await connection.close()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.PauseDispatch(pb.PauseDispatchRequest())
        line = await server.wait_for("loop_failing")

    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert (caught.value.details() or "").startswith("The schema of the database is damaged (")
    assert "does not exist" in line["reason"]
    assert not [event for event in server.events if event["level"] == "error"]


async def test_open_transaction_that_enqueued_delays_neither_a_limit_nor_a_start(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    enqueuing = connection.transaction()
    async with pulsed(database_dsn) as server, caller_of(server) as stub:
        await enqueuing.start()
        await connection.execute("SELECT pulse.enqueue('call', '{}')")
        await stub.SetTopic(pb.SetTopicRequest(topic="call", entries=pb.TopicEntries(running=1)))

    async with pulsed(database_dsn) as server, caller_of(server) as stub:
        await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))
        (limits,) = (await stub.ListLimits(pb.ListLimitsRequest())).limits
        assert (limits.topic, limits.in_force.running, limits.pending) == ("call", 1, "")
    await enqueuing.rollback()
    await connection.close()


async def test_database_that_takes_no_writes_is_refused(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    await connection.close()
    (code, _, errors), (check_code, entry, _) = await asyncio.gather(
        run_pulsed(DB_HOST=database_dsn), run_pulsed("check", DB_HOST=database_dsn)
    )
    assert (code, check_code) == (1, 1)
    sentence = "The database is a standby, or read-only. Name the primary in DB_HOST, or all hosts."
    assert sentence in sentence_of(errors)
    assert sentence in " ".join(entry.split())


async def test_second_pulsed_on_a_port_fails_instead_of_sharing_it(database_dsn: str) -> None:
    async with pulsed(database_dsn) as server:
        code, _, errors = await run_pulsed("--grpc-addr", server.address, DB_HOST=database_dsn)
        assert code == 1
        assert server.address in sentence_of(errors)
        async with caller_of(server) as stub:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetJob(pb.GetJobRequest(job_id="0190f3a0-0000-7000-8000-00000000dead"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
