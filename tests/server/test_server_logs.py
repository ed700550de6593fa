"""Logs: JSON lines on standard error, with events and their fields, and without secrets."""

import json
import logging
import sys
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.main import JsonFormatter
from tests.rows import each_row
from tests.server.pulsed_process import caller_of, pulsed, run_pulsed

CANARY = "tweety-4711"


def formatted(message: str, **attributes: object) -> dict[str, object]:
    record = logging.makeLogRecord(
        {"msg": message, "name": "pulse_server.x", "levelname": "INFO", **attributes}
    )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line: dict[str, object] = json.loads(text)
    return line


def test_line_carries_the_event_and_its_fields() -> None:
    line = formatted("lease_expired", job_id="j", attempt=3)
    assert line.pop("time")
    assert line == {
        "level": "info",
        "event": "lease_expired",
        "logger": "pulse_server.x",
        "job_id": "j",
        "attempt": 3,
    }


def test_text_of_any_kind_stays_on_one_line() -> None:
    assert formatted("event", text='two\nlines, "ä" and \u2028')["text"] == 'two\nlines, "ä" and \u2028'


def test_field_that_json_cannot_encode_is_logged_as_text() -> None:
    assert formatted("event", error=ValueError("boom"))["error"] == "boom"


def test_exception_is_logged_with_its_traceback() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        line = formatted("call_failed", exc_info=sys.exc_info())
    assert "ValueError: boom" in str(line["exception"])


def with_password(dsn: str, password: str) -> str:
    parts = urlsplit(dsn)
    user, _, host = parts.netloc.partition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{host}"))


async def cut_connections(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'pulsed%'"
    )
    await connection.close()


async def test_neither_password_nor_payload_reaches_the_log(database_dsn: str) -> None:
    """A whole life of jobs, calls that are refused, and connections that are cut, with everything logged."""
    dsn = with_password(database_dsn, CANARY)
    async with pulsed(dsn, PULSE_LOG_LEVEL="debug") as server, caller_of(server) as stub:
        submit = pb.SubmitJobRequest(topic="mail", payload=CANARY.encode(), metadata={"k": CANARY})
        await stub.SubmitJob(submit)
        stream = stub.StreamJobs(pb.StreamJobsRequest(topics=["mail"], worker_id="w1", capacity=1))
        await stream.read()
        (job,) = (await stream.read()).assignments
        await stub.ReportResult(pb.ReportResultRequest(job_id=job.job_id, error=CANARY, discard=True))
        for bad in (
            pb.SubmitJobRequest(topic=CANARY + " "),
            pb.SubmitJobRequest(topic="mail", payload=CANARY.encode(), metadata={"k": CANARY + "\0"}),
            pb.SubmitJobRequest(topic="mail", payload=b"other", job_id=job.job_id),
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.SubmitJob(bad)
        await cut_connections(database_dsn)
        await server.wait_for("wakeups_down")
        with suppress(grpc.aio.AioRpcError):
            await stub.SubmitJob(submit)
        server.signal()
        assert await server.ended() == 0
    assert CANARY not in server.log
    for line in server.events:
        assert {"time", "level", "event", "logger"} <= line.keys()
    story = ["serving", "worker_connected", "draining", "worker_disconnected", "stopped"]
    assert [line["event"] for line in server.events if line["event"] in story] == story
    assert not {line["level"] for line in server.events} & {"error", "critical"}


@each_row("character", ["/", "#", "?", "["])
async def test_password_that_breaks_the_url_is_not_quoted(character: str) -> None:
    url = f"postgres://pulse:{CANARY}{character}{CANARY}@127.0.0.1:1/pulse"
    code, _, errors = await run_pulsed(DB_HOST=url)
    assert code == 1
    assert CANARY not in errors
    assert errors.startswith("pulsed: ")
    assert len(errors.splitlines()) == 1
