"""`pulse jobs cancel` and `retry` for all jobs that match."""

import asyncio
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import pulse as sdk
from pulse_cli.loops.bulk import Action, go_through
from tests.cli.command_line import CommandLine, ended, plain_text
from tests.cli.conftest import TASKS
from tests.rows import each_row
from tools.cli_shapes import SHAPES

MANY = 10_000


def sql(dsn: str, statement: str, *arguments: object) -> list[Any]:
    """Run a statement beside the server's back. Returns its rows."""

    async def fetch() -> list[Any]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(statement, *arguments)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def bury(dsn: str, topic: str, count: int, error: str = "connection refused") -> None:
    """Have so many dead letters on a topic, some of them a day old."""
    sql(
        dsn,
        """
        INSERT INTO pulse.jobs (id, submitted_at, next_run_at, started_at, finished_at, attempts,
            max_attempts, queued, delivered, status, topic, payload, last_error, ended_as)
        SELECT gen_random_uuid(), at, at, at, at, 1, 1, false, true, 'DEAD_LETTERED', $1, '', $3,
            'DEAD_LETTERED'
        FROM generate_series(1, $2::int) AS number,
            LATERAL (SELECT now() - number * interval '10 seconds' AS at) AS submitted
        """,
        *(topic, count, error),
    )


def statuses(dsn: str, topic: str) -> dict[str, int]:
    rows = sql(dsn, "SELECT status, count(*) FROM pulse.all_jobs WHERE topic = $1 GROUP BY 1", topic)
    return dict(tuple(row) for row in rows)


def untouched(dsn: str, topic: str) -> int:
    (row,) = sql(
        dsn,
        "SELECT count(*) FROM pulse.all_jobs WHERE topic = $1 AND status = 'DEAD_LETTERED' AND attempts = 1 "
        "AND max_attempts = 1 AND finished_at = submitted_at AND last_error = 'connection refused'",
        topic,
    )
    return int(row[0])


# ---------------------------------------------------------------- ten thousand, under load, with Ctrl-C


@pytest.fixture
def load(own: CommandLine, own_address: str, tmp_path: Path) -> Iterator[None]:
    """A worker that is busy with what a producer stores, for the length of a test."""
    (tmp_path / "tasks.py").write_text(TASKS)
    is_over = threading.Event()

    def produce() -> None:
        with sdk.SyncPulse(own_address) as client:
            while not is_over.wait(0.05):
                client.enqueue_many("ok", [None] * 50)

    producer = threading.Thread(target=produce)
    with own.process("worker", "tasks:app", "--topics", "ok", cwd=tmp_path) as worker:
        producer.start()
        try:
            yield
        finally:
            is_over.set()
            producer.join()
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=30)


def test_interrupted_retry_reports_its_progress_and_leaves_the_rest(
    own: CommandLine, own_database: str, load: None
) -> None:
    bury(own_database, "ok", MANY)
    command = ["jobs", "retry", "--topic", "ok", "--status", "DEAD_LETTERED"]
    with own.process(*command, "--yes", "-o", "json") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "500 of 10,000 retried\n"
        assert process.stderr.readline() == "1,000 of 10,000 retried\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    found = re.search(r"pulse: ([\d,]+) of 10,000 were retried; the rest is untouched", errors)
    assert found is not None
    action_id = re.search('"action_id": "([0-9a-f-]+)"', out)
    assert action_id is not None
    assert f"Undo with: pulse undo {action_id[1]}" in errors
    brought_back = int(found[1].replace(",", ""))
    assert 1_000 <= brought_back < MANY
    assert f'"changed": {brought_back}, "complete": false' in out
    assert untouched(own_database, "ok") == MANY - brought_back

    left = MANY - brought_back
    with own.terminal(*command) as child:
        child.expect(f"Retry {left:,} DEAD_LETTERED jobs on ok\\? ")
        child.sendline("y")
        child.expect(rf"[1-9][\d,]* of {left:,} retried")
        child.sendintr()
        assert ended(child) == 130
        found = re.search(rf"([\d,]+) of {left:,} were retried; the rest", plain_text(child.before))
    assert found is not None
    left -= int(found[1].replace(",", ""))
    assert untouched(own_database, "ok") == left

    result = own(*command, "--yes")
    assert result.code == 0
    assert f"{left:,} DEAD_LETTERED jobs on ok were retried." in result.out
    (row,) = sql(own_database, "SELECT count(*) FROM pulse.all_jobs WHERE last_error = 'connection refused'")
    assert row[0] == MANY  # none is lost
    assert "DEAD_LETTERED" not in statuses(own_database, "ok")


@each_row(
    "trouble, code, sentence",
    [
        (
            sdk.Unavailable("No pulsed answers."),
            5,
            "when: No pulsed answers. Continue with the same command.",
        ),
        (sdk.PermissionDenied("Not you."), 4, "500 of 900 were retried, then: Not you."),
        (KeyboardInterrupt(), 130, "and perhaps one more batch; the rest is untouched."),
    ],
)
def test_batch_without_an_answer_is_reported_but_not_counted(
    address: str, trouble: BaseException, code: int, sentence: str
) -> None:
    answers = iter([sdk.Batch(500, "cursor", action_id="a")])

    def step(*_: object) -> sdk.Batch:
        if (answer := next(answers, None)) is None:
            raise trouble
        return answer

    with sdk.SyncPulse(address) as client:
        action = Action("retry", "retried", (), step, id="a")
        done, _, failure = go_through(client, action, {}, 900)
        nothing, _, first = go_through(client, action, {}, 900)
    assert done == 500
    assert failure is not None
    assert failure.code == code
    assert failure.sentence.startswith("500 of 900 were retried")
    assert sentence in failure.sentence
    assert failure.details == ("Undo with: pulse undo a",)
    assert nothing == 0
    assert first is not None
    is_refused = isinstance(trouble, sdk.PermissionDenied)
    assert bool(first.details) is not is_refused, "a batch without an answer may have changed jobs"


# ---------------------------------------------------------------- retry


def test_dry_run_counts_shows_and_changes_nothing(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 7)
    result = own("jobs", "retry", "--topic", topic, "--dry-run")
    assert result.code == 0
    assert f"7 DEAD_LETTERED jobs on {topic} would be retried." in result.out
    assert result.out.count("connection refused") == 3
    shape = own("jobs", "retry", "--topic", topic, "--dry-run", "-o", "json").json
    assert (shape["matched"], shape["changed"], shape["dry_run"]) == (7, 0, True)
    assert untouched(own_database, topic) == 7


def test_pipe_without_yes_is_refused_with_the_count(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 7)
    result = own("jobs", "retry", "--topic", topic)
    assert (result.code, result.out) == (2, "")
    assert f"Retry 7 DEAD_LETTERED jobs on {topic}?" in result.err
    assert "--yes" in result.err
    assert untouched(own_database, topic) == 7


def test_terminal_shows_the_newest_and_takes_no_for_an_answer(
    own: CommandLine, own_database: str, topic: str
) -> None:
    bury(own_database, topic, 7)
    with own.terminal("jobs", "retry", "--topic", topic, columns=140) as child:
        child.expect(r"\? \[y/N\]: ")
        assert plain_text(child.before).count("connection refused") == 3
        child.sendline("n")
        assert ended(child) == 1
        assert "nothing was changed" in child.before
    assert untouched(own_database, topic) == 7


def test_terminal_shows_a_bar_and_the_outcome(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 1200)
    result = own.screen("jobs", "retry", "--topic", topic, "--yes")
    assert result.code == 0
    assert "━" in result.out
    assert f"1,200 DEAD_LETTERED jobs on {topic} were retried." in plain_text(result.out)
    assert statuses(own_database, topic) == {"PENDING": 1200}


def test_retry_grants_attempts(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 1)
    result = own("jobs", "retry", "--topic", topic, "--attempts", "3", "--yes")
    assert f"1 DEAD_LETTERED job on {topic} was retried." in result.out
    (job,) = own("jobs", "list", "--topic", topic, "-o", "json").json
    assert job["max_attempts"] == 4


def test_filters_meet_what_they_say_and_nothing_else(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 20, "connection refused")
    bury(own_database, topic, 20, "card refused")
    options = ["--topic", topic, "--error", "CONNECTION", "--since", "105s", "--yes"]
    result = own("jobs", "retry", *options, "-o", "json")
    assert (result.json["matched"], result.json["changed"], result.json["complete"]) == (10, 10, True)
    documented = next(shape for title, shape in SHAPES.items() if title.startswith("An action on all"))
    assert list(result.json) == list(documented)
    assert statuses(own_database, topic) == {"PENDING": 10, "DEAD_LETTERED": 30}
    assert (
        own("jobs", "retry", "--topic", topic, "--before", "1h", "--dry-run", "-o", "json").json["matched"]
        == 0
    )


def test_canceled_jobs_come_back_only_when_asked_for(own: CommandLine, topic: str) -> None:
    own("submit", topic, "--count", "3")
    own("jobs", "cancel", "--topic", topic, "--yes")
    assert "There are no DEAD_LETTERED jobs" in own("jobs", "retry", "--topic", topic, "--yes").out
    result = own("jobs", "retry", "--topic", topic, "--status", "CANCELED", "--yes")
    assert f"3 CANCELED jobs on {topic} were retried." in result.out


# ---------------------------------------------------------------- cancel


def test_cancel_meets_all_that_has_not_finished(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 2)
    own("submit", topic, "--count", "3")
    own("submit", topic, "--delay", "1h")
    result = own("jobs", "cancel", "--topic", topic, "--yes", "--reason", "wrong file")
    assert result.code == 0
    assert f"4 jobs on {topic} were canceled." in result.out
    assert "4 of 4 canceled" in result.err
    assert statuses(own_database, topic) == {"CANCELED": 4, "DEAD_LETTERED": 2}
    found = own("jobs", "list", "--topic", topic, "--status", "CANCELED", "-o", "json").json
    assert {job["last_error"] for job in found} == {"wrong file"}


def test_cancel_shows_the_count_of_each_status(own: CommandLine, topic: str) -> None:
    own("submit", topic, "--count", "3")
    shown = own("jobs", "cancel", "--topic", topic, "--dry-run").out
    assert shown.splitlines()[:2] == [f"3 jobs on {topic} would be canceled.", "3 PENDING"]


def test_no_match_is_not_a_failure(own: CommandLine, topic: str) -> None:
    result = own("jobs", "cancel", "--topic", topic)
    assert result.code == 0
    assert f"There are no jobs on {topic}" in result.out


@each_row(
    "options, sentence",
    [
        (["cancel"], "Give the jobs to cancel"),
        (["retry"], "Give the jobs to retry"),
        (["retry", "--yes"], "Give the jobs to retry"),
        (["retry", "--status", "RUNNING"], "only DEAD_LETTERED, CANCELED jobs can"),
        (["cancel", "--status", "COMPLETED"], "only PENDING, RUNNING, RETRYING jobs can"),
        (["cancel", "0199c0de", "--topic", "t"], "not both"),
        (["retry", "0199c0de", "--dry-run"], "not both"),
        (["delete"], "Give the jobs to delete"),
        (["delete", "--topic", "t"], "--status of the jobs to delete: COMPLETED, DEAD_LETTERED, CANCELED"),
        (["delete", "--status", "RUNNING"], "only COMPLETED, DEAD_LETTERED, CANCELED jobs can"),
        (["prioritize", "--priority", "1"], "Give the jobs to prioritize"),
        (["prioritize", "--topic", "t"], "--priority"),
        (
            ["prioritize", "--status", "CANCELED", "--priority", "1"],
            "only PENDING, RUNNING, RETRYING jobs can",
        ),
        (["prioritize", "0199c0de", "--metadata", "a=b", "--priority", "1"], "not both"),
        (["cancel", "--error-group", "86194952523c"], "only PENDING, RUNNING, RETRYING jobs can"),
        (["list", "--metadata", "tenant"], "name=value"),
    ],
)
def test_misuse_is_a_sentence_before_any_call(alone: CommandLine, options: list[str], sentence: str) -> None:
    result = alone("jobs", *options)
    assert (result.code, result.out) == (2, "")
    assert sentence in result.err


def test_server_that_is_gone_is_5(alone: CommandLine) -> None:
    result = alone("jobs", "retry", "--topic", "t", "--yes", "--addr", "127.0.0.1:1", "--timeout", "200ms")
    assert (result.code, result.out) == (5, "")


# ---------------------------------------------------------------- undo


def test_undo_tells_a_locked_job_from_one_whose_key_is_taken(
    own: CommandLine, own_database: str, topic: str
) -> None:
    def submit(*options: str) -> str:
        return own("submit", topic, "--delay", "2h", *options, "-o", "plain").out.strip()

    submit("--unique", "k")
    locked = submit()
    action = own("jobs", "cancel", "--topic", topic, "--yes", "-o", "json").json["action_id"]
    submit("--unique", "k")

    async def beside_a_lock() -> str:
        connection = await asyncpg.connect(own_database)
        try:
            async with connection.transaction():
                await connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", locked)
                return (await asyncio.to_thread(own, "undo", action, "--yes")).out
        finally:
            await connection.close()

    result = plain_text(asyncio.run(beside_a_lock()))
    assert "0 jobs were undone. 1 is locked by another session of the database." in result
    assert "1 stays as it is: another job holds its unique key." in result
    assert "changed" not in result
