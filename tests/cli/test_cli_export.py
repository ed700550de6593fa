"""`pulse jobs export`: finished jobs as JSON Lines."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from pulse_server.views import records
from tests.cli.command_line import CommandLine
from tests.cli.serving import serving


@pytest.fixture(scope="module")
def own(own_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """`pulse` with a server that this module has for itself."""
    with serving(own_database) as address:
        yield CommandLine(tmp_path_factory.mktemp("cli"), {"PULSE_ADDR": address})


def finish(own: CommandLine, dsn: str, topic: str, *payloads: str) -> list[str]:
    """Canceled jobs with these payloads, an hour old. Returns their ids."""
    ids = [own("submit", topic, "--payload", payload, "-o", "plain").out.strip() for payload in payloads]
    own("jobs", "cancel", *ids)
    execute(
        dsn,
        "UPDATE pulse.jobs SET submitted_at = submitted_at - interval '1 hour', "
        "finished_at = finished_at - interval '1 hour' WHERE topic = $1",
        topic,
    )
    return ids


def add_step(dsn: str, job_id: str) -> None:
    execute(dsn, "UPDATE pulse.jobs SET steps = 1 WHERE id = $1", job_id)
    execute(
        dsn,
        "INSERT INTO pulse.job_steps (job_id, name, position, attempt, started_at, stored_at, kind, value) "
        "VALUES ($1, 'fetch', 1, 1, now(), now(), 'step', '42')",
        job_id,
    )


def execute(dsn: str, query: str, value: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(query, value)
        await connection.close()

    asyncio.run(run())


def test_export_to_standard_output_has_a_line_for_each_job(
    own: CommandLine, own_database: str, topic: str
) -> None:
    ids = finish(own, own_database, topic, '{"to": "ä\\ud800"}', '"x"')
    add_step(own_database, ids[0])

    result = own("jobs", "export", "--topic", topic)

    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["id"] for line in lines] == ids
    assert lines[0]["payload"] == {"to": "ä\ud800"}
    assert lines[0]["status"] == "CANCELED"
    assert [(step["name"], step["size"]) for step in lines[0]["step_list"]] == [("fetch", 2)]
    for job_id, line in zip(ids, lines, strict=True):
        assert line == json.loads(own("jobs", "get", job_id, "-o", "json").out)
    assert "2 jobs that finished before" in result.err


def test_export_to_a_file_never_overwrites_one(
    own: CommandLine, own_database: str, topic: str, tmp_path: Path
) -> None:
    ids = finish(own, own_database, topic, "1", "2")
    path = tmp_path / "jobs.jsonl"

    assert own("jobs", "export", "--topic", topic, "--file", str(path)).out == ""
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ids
    again = own("jobs", "export", "--topic", topic, "--file", str(path))
    assert again.code != 0
    assert "exists already" in again.err
    assert len(path.read_text().splitlines()) == 2


def test_refused_export_leaves_no_file(own: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    result = own("jobs", "export", "--status", "RUNNING", "--file", str(path))
    assert result.code != 0
    assert "only finished jobs" in result.err
    assert not path.exists()


def test_times_bound_the_export_by_when_jobs_finished(
    own: CommandLine, own_database: str, topic: str
) -> None:
    ids = finish(own, own_database, topic, "1")

    def exported(*options: str) -> list[str]:
        lines = own("jobs", "export", "--topic", topic, *options).out.splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert exported("--before", "30m") == ids
    assert exported("--before", "2h") == []
    assert exported("--since", "90m") == ids
    assert exported("--since", "30m") == []
    assert exported("--status", "completed") == []


def test_unwritable_file_is_named(own: CommandLine, tmp_path: Path) -> None:
    result = own("jobs", "export", "--file", str(tmp_path / "nowhere" / "jobs.jsonl"))
    assert result.code != 0
    assert "nowhere" in result.err


def test_page_of_the_server_is_smaller_than_what_a_client_receives() -> None:
    assert records.PAGE_BYTES <= 2 * 1024 * 1024
